-- The fence and what belongs to it. Keys and whatever comes from outside are
-- binary: every text collation takes some two different order ids for one.
-- Times are microseconds since 1970 in UTC, by this server's clock; 0: not known.

-- +goose Up
-- The permanent part of a row. Its primary key decides a capture. No index has a
-- column that a settlement changes.
CREATE TABLE IF NOT EXISTS zabor_fences (
  scope           VARBINARY(64) NOT NULL,
  order_id        VARBINARY(255) NOT NULL,
  step            VARBINARY(128) NOT NULL,
  provider        VARBINARY(128) NOT NULL,
  account         VARBINARY(255) NOT NULL,
  address         VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  generation      BIGINT NOT NULL,
  provider_key    VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  amount_minor    BIGINT NOT NULL,
  currency        VARCHAR(8) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  message_fp      VARBINARY(255) NOT NULL,
  request_fp      VARBINARY(255) NOT NULL,
  fields          VARBINARY(4000) NOT NULL,
  captured_at     BIGINT NOT NULL,
  state           VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  cause           VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  reason          VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  epoch           BIGINT NOT NULL,
  attempt_id      BINARY(16) NOT NULL,
  prepared        VARBINARY(1024) NOT NULL,
  reference       VARBINARY(1024) NOT NULL,
  other_reference VARBINARY(1024) NOT NULL,
  hook_due        VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  parked          VARBINARY(255) NOT NULL,
  forwarded       TINYINT NOT NULL,
  tries           BIGINT NOT NULL,
  unproven        BIGINT NOT NULL,
  state_since     BIGINT NOT NULL,
  PRIMARY KEY (scope, order_id, step),
  KEY zabor_fences_captured (captured_at),
  KEY zabor_fences_order (order_id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- What an unfinished row needs: its request, deadlines and bindings, and the watch of resolvers.
CREATE TABLE IF NOT EXISTS zabor_open (
  scope        VARBINARY(64) NOT NULL,
  order_id     VARBINARY(255) NOT NULL,
  step         VARBINARY(128) NOT NULL,
  provider     VARBINARY(128) NOT NULL,
  pending      TINYINT NOT NULL,
  request      MEDIUMBLOB NULL,
  prepare_key  VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  hook_data    MEDIUMBLOB NULL,
  hook_done    TINYINT NOT NULL,
  send_id      BINARY(16) NOT NULL,
  replays      BIGINT NOT NULL,
  lease        BIGINT NOT NULL,
  absent_after BIGINT NOT NULL,
  hold_after   BIGINT NOT NULL,
  pending_for  BIGINT NOT NULL,
  send_until   BIGINT NOT NULL,
  replay_until BIGINT NOT NULL,
  due_at       BIGINT NOT NULL,
  watcher      VARBINARY(16) NOT NULL,
  watch_until  BIGINT NOT NULL DEFAULT 0,
  watched      BIGINT NOT NULL DEFAULT 0,
  silent       BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (scope, order_id, step),
  KEY zabor_open_due (due_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- Answers, for repeats of the same request. answered_at is 0 once header and body were erased.
CREATE TABLE IF NOT EXISTS zabor_answers (
  scope       VARBINARY(64) NOT NULL,
  order_id    VARBINARY(255) NOT NULL,
  step        VARBINARY(128) NOT NULL,
  status      BIGINT NOT NULL,
  header      MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  body        MEDIUMBLOB NULL,
  answered_at BIGINT NOT NULL,
  PRIMARY KEY (scope, order_id, step),
  KEY zabor_answers_time (answered_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- Whose reference is whose: two orders of one installation, provider and account may not share one.
CREATE TABLE IF NOT EXISTS zabor_references (
  reference    VARBINARY(1024) NOT NULL,
  installation VARBINARY(64) NOT NULL,
  provider     VARBINARY(128) NOT NULL,
  account      VARBINARY(255) NOT NULL,
  address      VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  scope        VARBINARY(64) NOT NULL,
  order_id     VARBINARY(255) NOT NULL,
  step         VARBINARY(128) NOT NULL,
  noted_at     BIGINT NOT NULL,
  PRIMARY KEY (reference, installation, provider, account),
  KEY zabor_references_newest (provider, account, address, noted_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

CREATE TABLE IF NOT EXISTS zabor_notes (
  id       BINARY(16) NOT NULL,
  scope    VARBINARY(64) NOT NULL,
  order_id VARBINARY(255) NOT NULL,
  step     VARBINARY(128) NOT NULL,
  epoch    BIGINT NOT NULL,
  at       BIGINT NOT NULL,
  kind     VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  actor    VARBINARY(128) NOT NULL,
  note     MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  PRIMARY KEY (id),
  KEY zabor_notes_key (scope, order_id, step, at),
  KEY zabor_notes_recent (kind, at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

CREATE TABLE IF NOT EXISTS zabor_unreadable (
  id     BINARY(32) NOT NULL,
  queue  VARBINARY(255) NOT NULL,
  bytes  LONGBLOB NOT NULL,
  reason VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  at     BIGINT NOT NULL,
  PRIMARY KEY (id),
  KEY zabor_unreadable_recent (queue, at, id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

CREATE TABLE IF NOT EXISTS zabor_meta (
  name  VARBINARY(255) NOT NULL,
  value MEDIUMBLOB NOT NULL,
  PRIMARY KEY (name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

CREATE TABLE IF NOT EXISTS zabor_processes (
  id      BINARY(16) NOT NULL,
  started BIGINT NOT NULL,
  seen    BIGINT NOT NULL,
  status  MEDIUMBLOB NOT NULL,
  PRIMARY KEY (id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- For people and for the application's own reports. A key that is not valid
-- UTF-8 shows as NULL.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW zabor_results AS
SELECT
  IF(CAST(CONVERT(f.scope USING utf8mb4) AS BINARY) = f.scope, CONVERT(f.scope USING utf8mb4), NULL) AS scope,
  IF(CAST(CONVERT(f.order_id USING utf8mb4) AS BINARY) = f.order_id, CONVERT(f.order_id USING utf8mb4), NULL) AS order_id,
  IF(CAST(CONVERT(f.step USING utf8mb4) AS BINARY) = f.step, CONVERT(f.step USING utf8mb4), NULL) AS step,
  state,
  IF(CAST(CONVERT(reference USING utf8mb4) AS BINARY) = reference, CONVERT(reference USING utf8mb4), NULL) AS reference,
  amount_minor, currency, a.status AS answer_status, a.body AS answer_body, reason,
  TIMESTAMPADD(MICROSECOND, captured_at, TIMESTAMP'1970-01-01 00:00:00.000000') AS captured_at,
  TIMESTAMPADD(MICROSECOND, state_since, TIMESTAMP'1970-01-01 00:00:00.000000') AS state_since
FROM zabor_fences f LEFT JOIN zabor_answers a ON a.scope = f.scope AND a.order_id = f.order_id AND a.step = f.step;
