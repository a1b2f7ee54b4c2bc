-- The fence and what belongs to it. Keys and whatever comes from outside are
-- binary: every text collation takes some two different order ids for one.
-- Times are microseconds since 1970 in UTC, by this server's clock; 0: not known.

-- +goose Up
CREATE TABLE IF NOT EXISTS zabor_fences (
  scope           VARBINARY(64)  NOT NULL,
  order_id        VARBINARY(255) NOT NULL,
  step            VARBINARY(128) NOT NULL,
  state           VARCHAR(16)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  basis           VARCHAR(16)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  epoch           BIGINT         NOT NULL,
  attempt_id      BINARY(16)     NOT NULL,
  provider        VARBINARY(128) NOT NULL,
  account         VARBINARY(255) NOT NULL,
  generation      INT            NOT NULL,
  provider_key    VARCHAR(64)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  prepare_key     VARCHAR(64)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  amount_minor    BIGINT         NOT NULL,
  currency        VARCHAR(8)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  message_fp      VARBINARY(255) NOT NULL,
  fingerprint     VARBINARY(255) NOT NULL,
  request         MEDIUMBLOB     NULL,
  prepared        VARBINARY(1024) NOT NULL,
  reference       VARBINARY(1024) NOT NULL,
  other_reference VARBINARY(1024) NOT NULL,
  answer_status   INT            NULL,
  answer_header   MEDIUMTEXT     CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  answer_body     MEDIUMBLOB     NULL,
  reason          VARCHAR(1000)  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  hook_due        VARCHAR(64)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  parked          VARBINARY(255) NOT NULL,
  captures        INT            NOT NULL,
  free            INT            NOT NULL,
  allowance       INT            NOT NULL,
  lease           BIGINT         NOT NULL,
  absent_after    BIGINT         NOT NULL,
  hold_after      BIGINT         NOT NULL,
  pending_for     BIGINT         NOT NULL,
  fields          VARBINARY(4000) NOT NULL,
  hook_data       MEDIUMBLOB     NULL,
  hooked          TINYINT        NOT NULL,
  replays         INT            NOT NULL,
  moved_on        INT            NOT NULL,
  captured_at     BIGINT         NOT NULL,
  send_until      BIGINT         NOT NULL,
  replay_until    BIGINT         NOT NULL,
  state_since     BIGINT         NOT NULL,
  looked_at       BIGINT         NOT NULL DEFAULT 0,
  PRIMARY KEY (scope, order_id, step),
  KEY zabor_fences_open (state, scope, order_id, step),
  KEY zabor_fences_due (hook_due),
  KEY zabor_fences_control (provider, account, state, basis, state_since)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

CREATE TABLE IF NOT EXISTS zabor_notes (
  id       BINARY(16)     NOT NULL,
  scope    VARBINARY(64)  NOT NULL,
  order_id VARBINARY(255) NOT NULL,
  step     VARBINARY(128) NOT NULL,
  epoch    BIGINT         NOT NULL,
  at       BIGINT         NOT NULL,
  kind     VARCHAR(32)    CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  actor    VARBINARY(128) NOT NULL,
  note     TEXT           CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  PRIMARY KEY (id),
  KEY zabor_notes_key (scope, order_id, step, at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

CREATE TABLE IF NOT EXISTS zabor_unreadable (
  id     BINARY(32)     NOT NULL,
  queue  VARBINARY(255) NOT NULL,
  bytes  LONGBLOB       NOT NULL,
  reason VARCHAR(1000)  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  at     BIGINT         NOT NULL,
  PRIMARY KEY (id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

CREATE TABLE IF NOT EXISTS zabor_meta (
  name  VARBINARY(255) NOT NULL,
  value MEDIUMBLOB     NOT NULL,
  PRIMARY KEY (name)
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
