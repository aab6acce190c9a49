"""Rows of all kinds of wrong, and some that are right, from a seed."""

import random
import re

from xml_contents import answer, link, question, row

MAXIMUM_BODY = 40  # bytes; some of the texts here have as many, some have more

ODD_VALUES = [
    b"", b" ", b"1", b"2", b"3", b"0", b"-0", b"-1", b"+5", b"007", b"01", b"1 ", b" 1", b"1.0", b"1e3", b"x", b"0x10",
    b"1_000", b"\xd9\xa7", b"&#49;", b"2147483647", b"2147483648", b"-2147483648", b"-2147483649",
    b"281474976710655", b"281474976710656", b"999999999999999999", b"-999999999999999999", b"9223372036854775807",
    b"9223372036854775808", b"-9223372036854775808", b"12345678901234567890", b"9" * 30, b"1000000001", b"1000000010",
    b"01000000001", b"-", b"--1", b"1-", b"17",
]  # fmt: skip
ODD_DATES = [
    b"", b" ", b"2012-03-06", b"2012-03-06T19:06", b"2012-03-06T19:06:05", b"2012-03-06T19:06:05.667",
    b"2012-03-06T19:06:05.6", b"2012-03-06T19:06:05.6679999", b"2012-03-06T19:06:05,667", b"2012-03-06T19:06:05Z",
    b"2012-03-06T19:06:05+02:00", b"2012-03-06T19:06:05.1+0200", b"2012-03-06 19:06:05", b"2012-03-06t19:06:05",
    b"20120306T190605", b"2012-W10-2T00:00:00", b"2024-02-29T00:00:00", b"2023-02-29T00:00:00", b"1900-02-29T00:00:00",
    b"2000-02-29T00:00:00", b"2024-02-30T00:00:00", b"2024-04-31T00:00:00", b"2024-13-01T00:00:00",
    b"2024-00-01T00:00:00", b"2024-01-00T00:00:00", b"2024-01-32T00:00:00", b"2024-01-01T24:00:00",
    b"2024-01-01T23:60:00", b"2024-01-01T23:59:60", b"0000-01-01T00:00:00", b"0001-01-01T00:00:00",
    b"9999-12-31T23:59:59.999", b"1969-12-31T23:59:59.999", b"1600-02-29T00:00:00.001", b"-001-01-01T00:00:00",
    b"2024-01-01T0:00:00.0", b"2024-01-01T00:00:00.-12", b"2024-01-01T00:00:00.12x", b"2024/01/01T00:00:00",
    b"2024-01-01T00.00.00", b"&#50;012-03-06T19:06:05", b"2012-03-06T19:06:05\xc3\xa9\xc3\xa9",
    b"0001-01-01T00:00:00+01:00", b"2012-03-06 19:06:05.667 UTC", b"2012-03-06T19:06:05+02:00 UTC", b" UTC", b"UTC",
    b"2012-03-06T19:06:0\xd9\xa7",
]  # fmt: skip
ODD_TEXTS = [
    b"", b" ", b"plain", b"a\tb", b"a\nb", b"a\r\nb", b"a&#9;b", b"a&#10;b&#xA;&#xa;&#xD;c",
    b"&lt;p&gt;&amp;&quot;&apos;",
    b"&nbsp;", b"&undefined;", b"&", b"&amp", b"&;", b"&#;", b"&#x;", b"&#X41;", b"&#1;", b"&#0;", b"&#x0041;",
    b"&#00000065;", b"&#000000000065;", b"&#xD800;", b"&#xDFFF;", b"&#xE000;", b"&#xFFFD;", b"&#xFFFE;", b"&#xFFFF;",
    b"&#x10000;", b"&#x10FFFF;", b"&#x110000;", b"&#99999999;", b"&#4294967361;", b"&#127;", b"&#x80;", b"&#x7FF;",
    b"&#x800;",
    b"&LT;", b"&Amp;", b"&am;", b"&quo;", b"&apos", b"& lt;", b"&#65", b"&#6 5;", b"&#-65;", b"&#6a;", b"&#xg;",
    b"&#x4g;", b"&#x4G;", b"&#x/4;",
    b"<", b"<b>", b">", b"/>", b"</row>", b"\x00", b"\x01", b"\x0b", b"\x0c", b"\x1f", b"\x7f", b"\x80", b"\xbf",
    b"\xc0\x80",
    b"\xc1\xbf", b"\xc2", b"\xc2\x80", b"\xc3\xa9", b"\xdf\xbf", b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xe0\xa0\x80",
    b"\xe2\x82",
    b"\xe2\x82\xac", b"\xed\x9f\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xee\x80\x80", b"\xef\xbb\xbf",
    b"\xef\xbf\xbd",
    b"\xef\xbf\xbe", b"\xef\xbf\xbf", b"\xf0\x80\x80\x80", b"\xf0\x8f\xbf\xbf", b"\xf0\x90\x80\x80",
    b"\xf0\x9f\x98\x80",
    b"\xf4\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xff", b"\xfe\xff",
    b"<a><b-c>", b"|a|b-c|", b"&lt;a&gt;&lt;b&gt;", b"||", b"|", b"a|b", b"&lt;&gt;", b"|a||b|", b"| |",
    b"\xe2\x80\x83|a|",
    b"x" * MAXIMUM_BODY, b"x" * (MAXIMUM_BODY + 1), b"\xc3\xa9" * (MAXIMUM_BODY // 2), b"\xc3\xa9" * MAXIMUM_BODY,
    b"&#233;" * (MAXIMUM_BODY // 2), b"&amp;" * (MAXIMUM_BODY + 1), b"x" * (MAXIMUM_BODY - 1) + b"\xc3\xa9",
]  # fmt: skip
ODD_PIECES = [
    *(bytes([byte]) for byte in b"<>&\"'/= \t\n\r\x00\x01\x0b\x0c\x85\xa0\xff0-xw#;"),
    b"<row ", b"<row\n", b"<row", b"<rows ", b"</row>", b"/>", b"/ >", b"<!-- a -->", b"<!-- <row -->", b"<?pi?>",
    b"<![CDATA[x]]>",
    b"text", b'Id="1"', b' Id="7"', b" Id = '8'", b' Other="x"', b' xmlns="u"',
    b' xmlns="http://www.w3.org/2000/xmlns/"', b' xmlns="a b"', b' xmlns:x="u" x:Id="3"',
    b' xml:lang="en"',
    b' xmlId="1"', b' XML="1"', b' Id1="1"', b' a-b="1"', b' \xc3\xa9="1"', b' x:y="1"', b' Idx="1"', b' I="1"',
    b' id="1"',
    b' PostTypeId="2"', b" PostTypeId='1'", b" Body", b"=", b'="', b"&amp;", b"\xc3", b"\xa9", b"\xed\xa0\x80",
    b"\xef\xbf\xbe",
    b" " + b"n" * 31 + b'="1"', b" " + b"n" * 32 + b'="1"', b"".join(b' %c%c="1"' % (97 + n // 26,
    97 + n % 26) for n in range(65)),
]  # fmt: skip
NAMES = {
    "posts": {
        b"Id": ODD_VALUES, b"PostTypeId": [b"1", b"1", b"1", b"2", b"2", *ODD_VALUES], b"CreationDate": ODD_DATES,
        b"Score": ODD_VALUES, b"ViewCount": ODD_VALUES, b"AnswerCount": ODD_VALUES, b"AcceptedAnswerId": ODD_VALUES,
        b"ClosedDate": ODD_DATES, b"ParentId": ODD_VALUES, b"Title": ODD_TEXTS, b"Body": ODD_TEXTS, b"Tags": ODD_TEXTS,
        b"OwnerUserId": ODD_TEXTS, b"OwnerDisplayName": ODD_TEXTS, b"ContentLicense": ODD_TEXTS, b"Other": ODD_TEXTS,
    },
    "postlinks": {
        b"Id": ODD_VALUES, b"PostId": ODD_VALUES, b"RelatedPostId": ODD_VALUES, b"CreationDate": ODD_DATES,
        b"LinkTypeId": [b"1", b"3", *ODD_VALUES], b"Other": ODD_TEXTS,
    },
}  # fmt: skip
GOOD_ROWS = {
    "posts": [
        question(1, CreationDate="2012-03-06T19:06:05.667", Score=3, Title="Tom & <Ann>", Body="é😀", Tags="<a><b>"),
        row(PostTypeId=1, OwnerUserId=5, Title="the Id stands behind", Body="x\ny", Id=2, AcceptedAnswerId=4),
        question(3, ClosedDate="2020-01-01T00:00:00", Tags="|a|b|", OwnerDisplayName="ann", ContentLicense="CC"),
        answer(4, 2, Body="yes", Score=-1),
        row(Body="of an answer", ParentId=2, Id=5, PostTypeId=2),
        row(Id=6, PostTypeId=5, Body="a wiki"),
        question(1, Title="again"),
        answer(4, 3),
        row(Title="no type", Id=7),
        b"<row Id='8' PostTypeId='1'/><row PostTypeId=\"2\" Id=\"9\" ParentId='1'/>",
    ],
    "postlinks": [
        link(1, 2, CreationDate="2012-03-06T19:06:05.667"),
        link(1, 2, 1),
        link(1, 2, 7),
        link(0, 2**48 - 1, 2**48 - 1),
        b"<row PostId='8' RelatedPostId='1' LinkTypeId='3'/><row PostId='8' RelatedPostId='1' LinkTypeId='3'/>",
    ],
}


class Mangler:
    """Rows of all kinds of wrong."""

    def __init__(self, seed: int, root: str) -> None:
        self._random = random.Random(seed)
        self._root = root

    def rows(self) -> bytes:
        choice = self._random
        kinds = choice.choice([(self._good,), (self._good, self._odd), (self._good, self._odd, self._one_oddity)])
        written = b"".join(choice.choice(kinds)() for _ in range(choice.randint(1, 8)))
        for _ in range(choice.choice([0, 0, 1, 1, 2, 5])):
            written = self._mutated(written)
        return written

    def _good(self) -> bytes:
        return self._random.choice(GOOD_ROWS[self._root])

    def _one_oddity(self) -> bytes:
        """A good row in which one attribute has another value."""
        name, values = self._random.choice(list(NAMES[self._root].items()))
        attribute = b" " + name + b"=" + self._quoted(values)
        good = re.sub(b" " + name + b"""=("[^"]*"|'[^']*')""", b"", self._good())
        before, end, after = good.partition(b" />" if b" />" in good else b"/>")
        return before + attribute + end + after

    def _odd(self) -> bytes:
        names = list(NAMES[self._root].items())
        chosen = self._random.sample(names, self._random.randint(1, len(names)))
        if self._root == "posts" and self._random.random() < 0.8:
            chosen = [(b"Id", [b"10", b"11"]), (b"PostTypeId", [b"1", b"2"]), *chosen[:3]]
            self._random.shuffle(chosen)
        return b"<row" + b"".join(self._attribute(*attribute) for attribute in chosen) + b"/>\n"

    def _attribute(self, name: bytes, values: list[bytes]) -> bytes:
        space = self._rarely(b" ", [b"\t", b"\r\n", b"  ", b"\xc2\xa0", b""])
        return space + name + self._rarely(b"=", [b" = ", b"=\n", b"==", b""]) + self._quoted(values)

    def _quoted(self, values: list[bytes]) -> bytes:
        quote = self._random.choice([b'"', b"'"])
        return quote + self._random.choice(values) + self._rarely(b"", [b"z", b"&lt;", quote]) + quote

    def _rarely(self, usual: bytes, others: list[bytes]) -> bytes:
        return self._random.choice(others) if self._random.random() < 0.05 else usual

    def _mutated(self, written: bytes) -> bytes:
        at = self._random.randrange(len(written) + 1)
        kind = self._random.choice(["flip", "delete", "insert", "insert", "cut", "copy"])
        if kind == "flip" and at < len(written):
            return written[:at] + bytes([written[at] ^ 1 << self._random.randrange(8)]) + written[at + 1 :]
        if kind == "delete":
            return written[:at] + written[at + self._random.choice([1, 1, 1, 2, 5, 30]) :]
        if kind == "copy":
            start = self._random.randrange(len(written) + 1)
            return written[:at] + written[start : start + 10] + written[at:]
        if kind == "cut":
            return written[:at]
        return written[:at] + self._random.choice(ODD_PIECES) + written[at:]
