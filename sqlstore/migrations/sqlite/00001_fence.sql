-- The fence and what belongs to it. Keys and whatever comes from outside are
-- BLOBs, and the tables STRICT: an order id 7 stored as a number or as text
-- would be another key than the bytes.
-- Times are microseconds since 1970 in UTC; 0: not known.

-- +goose Up
CREATE TABLE zabor_fences (
  scope           BLOB    NOT NULL,
  order_id        BLOB    NOT NULL,
  step            BLOB    NOT NULL,
  state           TEXT    NOT NULL,
  basis           TEXT    NOT NULL,
  epoch           INTEGER NOT NULL,
  attempt_id      BLOB    NOT NULL,
  provider        BLOB    NOT NULL,
  account         BLOB    NOT NULL,
  generation      INTEGER NOT NULL,
  provider_key    TEXT    NOT NULL,
  prepare_key     TEXT    NOT NULL,
  amount_minor    INTEGER NOT NULL,
  currency        TEXT    NOT NULL,
  message_fp      BLOB    NOT NULL,
  fingerprint     BLOB    NOT NULL,
  request         BLOB,
  prepared        BLOB    NOT NULL,
  reference       BLOB    NOT NULL,
  other_reference BLOB    NOT NULL,
  answer_status   INTEGER,
  answer_header   TEXT,
  answer_body     BLOB,
  reason          TEXT    NOT NULL,
  hook_due        TEXT    NOT NULL,
  parked          BLOB    NOT NULL,
  captures        INTEGER NOT NULL,
  free            INTEGER NOT NULL,
  allowance       INTEGER NOT NULL,
  lease           INTEGER NOT NULL,
  absent_after    INTEGER NOT NULL,
  hold_after      INTEGER NOT NULL,
  pending_for     INTEGER NOT NULL,
  fields          BLOB    NOT NULL,
  hook_data       BLOB,
  hooked          INTEGER NOT NULL,
  replays         INTEGER NOT NULL,
  moved_on        INTEGER NOT NULL,
  captured_at     INTEGER NOT NULL,
  send_until      INTEGER NOT NULL,
  replay_until    INTEGER NOT NULL,
  state_since     INTEGER NOT NULL,
  looked_at       INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (scope, order_id, step)
) STRICT;
CREATE INDEX zabor_fences_open ON zabor_fences (state, scope, order_id, step);
CREATE INDEX zabor_fences_due ON zabor_fences (scope, order_id, step) WHERE hook_due > '';
CREATE INDEX zabor_fences_control ON zabor_fences (provider, account, basis, state_since) WHERE state = 'settled';

CREATE TABLE zabor_notes (
  id       BLOB    NOT NULL PRIMARY KEY,
  scope    BLOB    NOT NULL,
  order_id BLOB    NOT NULL,
  step     BLOB    NOT NULL,
  epoch    INTEGER NOT NULL,
  at       INTEGER NOT NULL,
  kind     TEXT    NOT NULL,
  actor    BLOB    NOT NULL,
  note     TEXT    NOT NULL
) STRICT;
CREATE INDEX zabor_notes_key ON zabor_notes (scope, order_id, step, at);

CREATE TABLE zabor_unreadable (
  id     BLOB    NOT NULL PRIMARY KEY,
  queue  BLOB    NOT NULL,
  bytes  BLOB    NOT NULL,
  reason TEXT    NOT NULL,
  at     INTEGER NOT NULL
) STRICT;

CREATE TABLE zabor_meta (
  name  BLOB NOT NULL PRIMARY KEY,
  value BLOB NOT NULL
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
