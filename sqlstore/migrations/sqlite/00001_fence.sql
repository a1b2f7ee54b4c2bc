-- The fence and what belongs to it. Keys and whatever comes from outside are
-- BLOBs, and the tables STRICT: an order id 7 stored as a number or as text
-- would be another key than the bytes.
-- Times are microseconds since 1970 in UTC; 0: not known.

-- +goose Up
-- One row for each key. Its primary key decides a capture. What only an unfinished row
-- needs stands between captured_at and silent: due_at is NULL once nothing is left to do.
CREATE TABLE zabor_fences (
  order_id        BLOB NOT NULL,
  scope           BLOB NOT NULL,
  step            BLOB NOT NULL,
  provider        BLOB NOT NULL,
  account         BLOB NOT NULL,
  address         TEXT NOT NULL,
  generation      INTEGER NOT NULL,
  provider_key    TEXT NOT NULL,
  amount_minor    INTEGER NOT NULL,
  currency        TEXT NOT NULL,
  message_fp      BLOB NOT NULL,
  request_fp      BLOB NOT NULL,
  fields          BLOB NOT NULL,
  captured_at     INTEGER NOT NULL,
  request         BLOB,
  prepare_key     TEXT NOT NULL,
  hook_data       BLOB,
  hook_done       INTEGER NOT NULL,
  send_id         BLOB NOT NULL,
  replays         INTEGER NOT NULL,
  lingers         INTEGER NOT NULL,
  lease           INTEGER NOT NULL,
  absent_after    INTEGER NOT NULL,
  hold_after      INTEGER NOT NULL,
  pending_for     INTEGER NOT NULL,
  send_until      INTEGER NOT NULL,
  replay_until    INTEGER NOT NULL,
  due_at          INTEGER,
  watcher         BLOB NOT NULL,
  watch_until     INTEGER NOT NULL,
  watched         INTEGER NOT NULL,
  silent          INTEGER NOT NULL,
  state           TEXT NOT NULL,
  cause           TEXT NOT NULL,
  reason          TEXT NOT NULL,
  epoch           INTEGER NOT NULL,
  attempt_id      BLOB NOT NULL,
  prepared        BLOB NOT NULL,
  reference       BLOB NOT NULL,
  other_reference BLOB NOT NULL,
  hook_due        TEXT NOT NULL,
  parked          BLOB NOT NULL,
  forwarded       INTEGER NOT NULL,
  tries           INTEGER NOT NULL,
  unproven        INTEGER NOT NULL,
  state_since     INTEGER NOT NULL,
  answer_status   INTEGER,
  answer_header   TEXT,
  answer_body     BLOB,
  PRIMARY KEY (order_id, scope, step)
) STRICT;
CREATE INDEX zabor_fences_captured ON zabor_fences (captured_at);
CREATE INDEX zabor_fences_due ON zabor_fences (due_at) WHERE due_at IS NOT NULL;

-- Whose reference is whose: two orders of one installation, provider and account may not share one.
CREATE TABLE zabor_references (
  reference    BLOB NOT NULL,
  installation BLOB NOT NULL,
  provider     BLOB NOT NULL,
  account      BLOB NOT NULL,
  address      TEXT NOT NULL,
  order_id     BLOB NOT NULL,
  scope        BLOB NOT NULL,
  step         BLOB NOT NULL,
  noted_at     INTEGER NOT NULL,
  PRIMARY KEY (reference, installation, provider, account)
) STRICT;
CREATE INDEX zabor_references_newest ON zabor_references (provider, account, address, noted_at);

CREATE TABLE zabor_notes (
  id       BLOB NOT NULL,
  scope    BLOB NOT NULL,
  order_id BLOB NOT NULL,
  step     BLOB NOT NULL,
  epoch    INTEGER NOT NULL,
  at       INTEGER NOT NULL,
  kind     TEXT NOT NULL,
  actor    BLOB NOT NULL,
  note     TEXT NOT NULL,
  PRIMARY KEY (id)
) STRICT;
CREATE INDEX zabor_notes_key ON zabor_notes (order_id, scope, step, at);
CREATE INDEX zabor_notes_recent ON zabor_notes (kind, at);

CREATE TABLE zabor_unreadable (
  id     BLOB NOT NULL,
  queue  BLOB NOT NULL,
  bytes  BLOB NOT NULL,
  reason TEXT NOT NULL,
  at     INTEGER NOT NULL,
  PRIMARY KEY (id)
) STRICT;
CREATE INDEX zabor_unreadable_recent ON zabor_unreadable (queue, at, id);

CREATE TABLE zabor_meta (
  name  BLOB NOT NULL,
  value BLOB NOT NULL,
  PRIMARY KEY (name)
) STRICT;

CREATE TABLE zabor_processes (
  id      BLOB NOT NULL,
  started INTEGER NOT NULL,
  seen    INTEGER NOT NULL,
  status  BLOB NOT NULL,
  PRIMARY KEY (id)
) STRICT;

-- For people and for the application's own reports.
CREATE VIEW zabor_results AS
SELECT
  CAST(scope AS TEXT) AS scope, CAST(order_id AS TEXT) AS order_id, CAST(step AS TEXT) AS step,
  state, CAST(reference AS TEXT) AS reference,
  amount_minor, currency, answer_status, answer_body, reason,
  strftime('%Y-%m-%d %H:%M:%f', captured_at / 1000000.0, 'unixepoch') AS captured_at,
  strftime('%Y-%m-%d %H:%M:%f', state_since / 1000000.0, 'unixepoch') AS state_since
FROM zabor_fences;
