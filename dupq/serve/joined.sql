-- What is asked for: clusters by their place in the order "most telling", with their questions and pairs.
CREATE TABLE evidence AS
  SELECT member.head AS head, sum(DISTINCT 1 << source) AS sources, max(known) AS known, max(meaning) AS meaning
  FROM pair JOIN member ON member.key = pair."left" GROUP BY member.head;
CREATE UNIQUE INDEX evidence_head ON evidence (head);
CREATE TABLE changed AS SELECT cluster_id, sum(DISTINCT kind) AS kinds FROM change GROUP BY cluster_id;
CREATE UNIQUE INDEX changed_cluster ON changed (cluster_id);
CREATE UNIQUE INDEX head_id ON head (id);

-- As the report takes them in turn from several orders (report/explorer/choice.py).
CREATE TABLE cluster AS
  WITH whole AS (
    SELECT stats.*, head.key AS head, head.reason AS reason, ifnull(sources, 0) AS sources, ifnull(known, 0) AS known,
      ifnull(meaning, 0) AS meaning, ifnull(kinds, 0) AS changes
    FROM stats JOIN head ON head.id = stats.cluster_id
      LEFT JOIN evidence ON evidence.head = head.key LEFT JOIN changed ON changed.cluster_id = stats.cluster_id
  ), ranked AS (
    SELECT *,
      row_number() OVER (ORDER BY size DESC, cluster_id) AS by_size,
      row_number() OVER (ORDER BY weakest_link, cluster_id) AS by_doubt,
      row_number() OVER (ORDER BY weakest_link DESC, cluster_id) AS by_certainty,
      row_number() OVER (ORDER BY changes = 0, size DESC, cluster_id) AS by_change,
      row_number() OVER (ORDER BY meaning = 0, size DESC, cluster_id) AS by_meaning
    FROM whole
  )
  SELECT row_number() OVER (ORDER BY min(
      5 * by_size, 5 * by_doubt + 1, 5 * by_certainty + 2, iif(changes, 5 * by_change + 3, 5 * by_size),
      iif(meaning, 5 * by_meaning + 4, 5 * by_size)), cluster_id) AS place,
    cluster_id, head, size, edges, density, weakest_link, bridges, mean_probability, reason, sources, known, meaning, changes
  FROM ranked;
CREATE UNIQUE INDEX cluster_place ON cluster (place);
CREATE UNIQUE INDEX cluster_id ON cluster (cluster_id);
CREATE UNIQUE INDEX cluster_head ON cluster (head);

CREATE TABLE in_cluster (place INTEGER, number INTEGER, key INTEGER, PRIMARY KEY (place, number)) WITHOUT ROWID;
INSERT INTO in_cluster
  SELECT place, row_number() OVER (PARTITION BY place ORDER BY key <> cluster.head, key) - 1, key
  FROM member JOIN cluster ON cluster.head = member.head;
CREATE UNIQUE INDEX in_cluster_key ON in_cluster (key);

CREATE TABLE in_site (site INTEGER, place INTEGER, PRIMARY KEY (site, place)) WITHOUT ROWID;
INSERT INTO in_site SELECT DISTINCT key >> 48, place FROM in_cluster;

CREATE TABLE edge AS
  SELECT place, pair.* FROM pair JOIN in_cluster ON in_cluster.key = pair."left" ORDER BY place, probability, "left", "right", source;
CREATE INDEX edge_place ON edge (place, probability, "left", "right", source);

CREATE VIRTUAL TABLE search USING fts5 (titles, tokenize = 'trigram');

DROP TABLE pair; DROP TABLE member; DROP TABLE head; DROP TABLE stats; DROP TABLE change; DROP TABLE changed; DROP TABLE evidence;
