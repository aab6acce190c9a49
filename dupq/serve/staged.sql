-- What the passes over the tables write, row by row (dupq/serve/staging.py). Keys are packed (dupq/text/keys.py).
CREATE TABLE member (key INTEGER PRIMARY KEY, head INTEGER NOT NULL); -- of clusters of two and more; the canonical one
CREATE TABLE head (key INTEGER PRIMARY KEY, id TEXT NOT NULL, reason TEXT);
CREATE TABLE stats (
  cluster_id TEXT NOT NULL, size INTEGER NOT NULL, edges INTEGER NOT NULL, density REAL NOT NULL,
  weakest_link REAL NOT NULL, bridges INTEGER NOT NULL, mean_probability REAL NOT NULL
);
CREATE TABLE change (cluster_id TEXT NOT NULL, kind INTEGER NOT NULL); -- a bit of clusters.identity.KINDS
CREATE TABLE pair (
  "left" INTEGER NOT NULL, "right" INTEGER NOT NULL, source INTEGER NOT NULL, probability REAL NOT NULL,
  jaccard REAL, similarity REAL, title_overlap REAL, text_overlap REAL, tag_overlap REAL,
  rank_left INTEGER, rank_right INTEGER, known INTEGER NOT NULL, meaning INTEGER NOT NULL
);
CREATE TABLE question (
  key INTEGER PRIMARY KEY, title TEXT NOT NULL, score INTEGER, tags TEXT NOT NULL, file INTEGER NOT NULL, row INTEGER NOT NULL
);
CREATE TABLE embedded (key INTEGER PRIMARY KEY, file INTEGER NOT NULL, row INTEGER NOT NULL);
