-- The fence and what belongs to it. Keys and whatever comes from outside are
-- bytea: a text column refuses some order ids, and its collation orders them.
-- Times are microseconds since 1970 in UTC, by this server's clock; 0: not known.

-- +goose Up
CREATE TABLE zabor_fences (
  scope           bytea  NOT NULL,
  order_id        bytea  NOT NULL,
  step            bytea  NOT NULL,
  state           varchar(16) COLLATE "C" NOT NULL,
  basis           varchar(16) COLLATE "C" NOT NULL,
  epoch           bigint NOT NULL,
  attempt_id      bytea  NOT NULL,
  provider        bytea  NOT NULL,
  account         bytea  NOT NULL,
  generation      integer NOT NULL,
  provider_key    varchar(64) COLLATE "C" NOT NULL,
  prepare_key     varchar(64) COLLATE "C" NOT NULL,
  amount_minor    bigint NOT NULL,
  currency        varchar(8) COLLATE "C" NOT NULL,
  message_fp      bytea  NOT NULL,
  fingerprint     bytea  NOT NULL,
  request         bytea,
  prepared        bytea  NOT NULL,
  reference       bytea  NOT NULL,
  other_reference bytea  NOT NULL,
  answer_status   integer,
  answer_header   text,
  answer_body     bytea,
  reason          varchar(1000) NOT NULL,
  hook_due        varchar(64) COLLATE "C" NOT NULL,
  parked          bytea  NOT NULL,
  captures        integer NOT NULL,
  free            integer NOT NULL,
  allowance       integer NOT NULL,
  lease           bigint NOT NULL,
  absent_after    bigint NOT NULL,
  hold_after      bigint NOT NULL,
  pending_for     bigint NOT NULL,
  fields          bytea  NOT NULL,
  hook_data       bytea,
  hooked          smallint NOT NULL,
  replays         integer NOT NULL,
  moved_on        integer NOT NULL,
  captured_at     bigint NOT NULL,
  send_until      bigint NOT NULL,
  replay_until    bigint NOT NULL,
  state_since     bigint NOT NULL,
  looked_at       bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (scope, order_id, step)
);
CREATE INDEX zabor_fences_open ON zabor_fences (state, scope, order_id, step);
CREATE INDEX zabor_fences_due ON zabor_fences (scope, order_id, step) WHERE hook_due > '';
CREATE INDEX zabor_fences_control ON zabor_fences (provider, account, basis, state_since) WHERE state = 'settled';

CREATE TABLE zabor_notes (
  id       bytea  NOT NULL PRIMARY KEY,
  scope    bytea  NOT NULL,
  order_id bytea  NOT NULL,
  step     bytea  NOT NULL,
  epoch    bigint NOT NULL,
  at       bigint NOT NULL,
  kind     varchar(32) COLLATE "C" NOT NULL,
  actor    bytea  NOT NULL,
  note     text   NOT NULL
);
CREATE INDEX zabor_notes_key ON zabor_notes (scope, order_id, step, at);

CREATE TABLE zabor_unreadable (
  id     bytea  NOT NULL PRIMARY KEY,
  queue  bytea  NOT NULL,
  bytes  bytea  NOT NULL,
  reason varchar(1000) NOT NULL,
  at     bigint NOT NULL
);

CREATE TABLE zabor_meta (
  name  bytea NOT NULL PRIMARY KEY,
  value bytea NOT NULL
);

-- +goose StatementBegin
CREATE FUNCTION zabor_text(bytes bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
  RETURN convert_from(bytes, 'UTF8');
EXCEPTION WHEN others THEN
  RETURN NULL;
END
$$;
-- +goose StatementEnd

-- For people and for the application's own reports. A key that is not valid
-- UTF-8 shows as NULL.
CREATE VIEW zabor_results AS
SELECT
  zabor_text(scope) AS scope, zabor_text(order_id) AS order_id, zabor_text(step) AS step,
  state, zabor_text(reference) AS reference,
  amount_minor, currency, answer_status, answer_body, reason,
  timestamptz 'epoch' + captured_at * interval '1 microsecond' AS captured_at,
  timestamptz 'epoch' + state_since * interval '1 microsecond' AS state_since
FROM zabor_fences;
