-- The fence and what belongs to it. Keys and whatever comes from outside are
-- BLOBs, and the tables STRICT: an order id 7 stored as a number or as text
-- would be another key than the bytes.
-- Times are microseconds since 1970 in UTC; 0: not known.

-- +goose Up
-- The permanent part of a row. Its primary key decides a capture. No index has a
-- column that a settlement changes.
CREATE TABLE zabor_fences (
  scope           BLOB NOT NULL,
  order_id        BLOB NOT NULL,
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
  PRIMARY KEY (scope, order_id, step)
) STRICT;
CREATE INDEX zabor_fences_captured ON zabor_fences (captured_at);
CREATE INDEX zabor_fences_order ON zabor_fences (order_id);

-- What an unfinished row needs: its request, deadlines and bindings, and the watch of resolvers.
CREATE TABLE zabor_open (
  scope        BLOB NOT NULL,
  order_id     BLOB NOT NULL,
  step         BLOB NOT NULL,
  provider     BLOB NOT NULL,
  pending      INTEGER NOT NULL,
  request      BLOB,
  prepare_key  TEXT NOT NULL,
  hook_data    BLOB,
  hook_done    INTEGER NOT NULL,
  send_id      BLOB NOT NULL,
  replays      INTEGER NOT NULL,
  lease        INTEGER NOT NULL,
  absent_after INTEGER NOT NULL,
  hold_after   INTEGER NOT NULL,
  pending_for  INTEGER NOT NULL,
  send_until   INTEGER NOT NULL,
  replay_until INTEGER NOT NULL,
  due_at       INTEGER NOT NULL,
  watcher      BLOB NOT NULL,
  watch_until  INTEGER NOT NULL DEFAULT 0,
  watched      INTEGER NOT NULL DEFAULT 0,
  silent       INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (scope, order_id, step)
) STRICT;
CREATE INDEX zabor_open_due ON zabor_open (due_at);

-- Answers, for repeats of the same request. answered_at is 0 once header and body were erased.
CREATE TABLE zabor_answers (
  scope       BLOB NOT NULL,
  order_id    BLOB NOT NULL,
  step        BLOB NOT NULL,
  status      INTEGER NOT NULL,
  header      TEXT,
  body        BLOB,
  answered_at INTEGER NOT NULL,
  PRIMARY KEY (scope, order_id, step)
) STRICT;
CREATE INDEX zabor_answers_time ON zabor_answers (answered_at);

-- Whose reference is whose: two orders of one installation, provider and account may not share one.
CREATE TABLE zabor_references (
  reference    BLOB NOT NULL,
  installation BLOB NOT NULL,
  provider     BLOB NOT NULL,
  account      BLOB NOT NULL,
  address      TEXT NOT NULL,
  scope        BLOB NOT NULL,
  order_id     BLOB NOT NULL,
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
CREATE INDEX zabor_notes_key ON zabor_notes (scope, order_id, step, at);
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
  CAST(f.scope AS TEXT) AS scope, CAST(f.order_id AS TEXT) AS order_id, CAST(f.step AS TEXT) AS step,
  state, CAST(reference AS TEXT) AS reference,
  amount_minor, currency, a.status AS answer_status, a.body AS answer_body, reason,
  strftime('%Y-%m-%d %H:%M:%f', captured_at / 1000000.0, 'unixepoch') AS captured_at,
  strftime('%Y-%m-%d %H:%M:%f', state_since / 1000000.0, 'unixepoch') AS state_since
FROM zabor_fences f LEFT JOIN zabor_answers a ON a.scope = f.scope AND a.order_id = f.order_id AND a.step = f.step;
