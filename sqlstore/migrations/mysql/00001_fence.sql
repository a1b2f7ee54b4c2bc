-- The fence and what belongs to it. Keys and whatever comes from outside are
-- binary: every text collation takes some two different order ids for one.
-- Times are microseconds since 1970 in UTC, by this server's clock; 0: not known.

-- +goose Up
-- One row for each key. Its primary key decides a capture. What only an unfinished row
-- needs stands between captured_at and silent: due_at is NULL once nothing is left to do.
CREATE TABLE IF NOT EXISTS zabor_fences (
  order_id        VARBINARY(255) NOT NULL,
  scope           VARBINARY(64) NOT NULL,
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
  request         MEDIUMBLOB NULL,
  prepare_key     VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  hook_data       MEDIUMBLOB NULL,
  hook_done       TINYINT NOT NULL,
  send_id         BINARY(16) NOT NULL,
  replays         BIGINT NOT NULL,
  lingers         TINYINT NOT NULL,
  lease           BIGINT NOT NULL,
  absent_after    BIGINT NOT NULL,
  hold_after      BIGINT NOT NULL,
  pending_for     BIGINT NOT NULL,
  send_until      BIGINT NOT NULL,
  replay_until    BIGINT NOT NULL,
  due_at          BIGINT NULL,
  watcher         VARBINARY(16) NOT NULL,
  watch_until     BIGINT NOT NULL,
  watched         BIGINT NOT NULL,
  silent          BIGINT NOT NULL,
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
  answer_status   BIGINT NULL,
  answer_header   MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  answer_body     MEDIUMBLOB NULL,
  PRIMARY KEY (order_id, scope, step),
  KEY zabor_fences_captured (captured_at),
  KEY zabor_fences_due (due_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- Whose reference is whose: two orders of one installation, provider and account may not share one.
CREATE TABLE IF NOT EXISTS zabor_references (
  reference    VARBINARY(1024) NOT NULL,
  installation VARBINARY(64) NOT NULL,
  provider     VARBINARY(128) NOT NULL,
  account      VARBINARY(255) NOT NULL,
  address      VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  order_id     VARBINARY(255) NOT NULL,
  scope        VARBINARY(64) NOT NULL,
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
  KEY zabor_notes_key (order_id, scope, step, at),
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
  IF(CAST(CONVERT(scope USING utf8mb4) AS BINARY) = scope, CONVERT(scope USING utf8mb4), NULL) AS scope,
  IF(CAST(CONVERT(order_id USING utf8mb4) AS BINARY) = order_id, CONVERT(order_id USING utf8mb4), NULL) AS order_id,
  IF(CAST(CONVERT(step USING utf8mb4) AS BINARY) = step, CONVERT(step USING utf8mb4), NULL) AS step,
  state,
  IF(CAST(CONVERT(reference USING utf8mb4) AS BINARY) = reference, CONVERT(reference USING utf8mb4), NULL) AS reference,
  amount_minor, currency, answer_status, answer_body, reason,
  TIMESTAMPADD(MICROSECOND, captured_at, TIMESTAMP'1970-01-01 00:00:00.000000') AS captured_at,
  TIMESTAMPADD(MICROSECOND, state_since, TIMESTAMP'1970-01-01 00:00:00.000000') AS state_since
FROM zabor_fences;
