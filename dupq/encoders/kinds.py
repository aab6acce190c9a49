"""The kinds of encoders: the networks of `networks/` by the name that settings give them."""

import functools
import importlib
import inspect
import pkgutil
from typing import get_args

from dupq.encoders import networks
from dupq.encoders.network_settings import NetworkSettings
from dupq.errors import SettingError
from dupq.extras import papers
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.settings.encoder import EncoderSettings


@functools.cache
def kinds() -> dict[str, type[NetworkSettings]]:
    """The settings of each kind of network, with those of the papers where they are installed."""
    found = {}
    for package in (networks, *papers("networks")):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for _, part in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
                if issubclass(part, NetworkSettings) and not inspect.isabstract(part):
                    found.update(dict.fromkeys(get_args(part.model_fields["kind"].annotation), part))
    return dict(sorted(found.items()))


def network_settings(given: EncoderSettings) -> NetworkSettings:
    """The settings of the network that `given` names, with the defaults of what it does not give.

    Raises SettingError for a kind that does not exist, a setting that its network does not read, and a wrong value.
    """
    there = kinds()
    if given.kind not in there:
        raise SettingError(f"setting 'encoder.kind' is {given.kind!r}; allowed: {', '.join(map(repr, there))}")
    of_kind = there[given.kind]
    for name in given.model_extra or {}:
        if name not in of_kind.model_fields:
            read = ", ".join(of_kind.model_fields)
            raise SettingError(f"setting 'encoder.{name}': encoder.kind={given.kind} does not read it; it reads {read}")
    return of_kind.read(given.model_dump(), "encoder")


def learns_without_links(settings: Settings) -> bool:
    """Whether an encoder takes anything from an archive without known duplicates."""
    needs_links = network_settings(settings.encoder).needs_links
    return not needs_links or settings.title_body.epochs > 0 or bool(settings.teacher.encoder)


def presets_without_links() -> list[str]:
    """The presets of which that is so, by name."""
    return [name for name in config.preset_names() if learns_without_links(config.load(name))]


def counts_training_texts_only(settings: Settings) -> bool:
    """Whether an encoder's sums over texts are of those outside the development and the test part."""
    return getattr(network_settings(settings.encoder), "taken_from", None) == "training"


def read_by_its_kind(saved: EncoderSettings) -> EncoderSettings:
    """`saved` without what its network does not read: encoders once held the settings of all kinds."""
    given = saved.model_dump()
    fields = kinds()[saved.kind].model_fields if saved.kind in kinds() else given
    return EncoderSettings.read({name: value for name, value in given.items() if name in fields})
