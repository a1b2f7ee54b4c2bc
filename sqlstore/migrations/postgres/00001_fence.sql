-- The fence and what belongs to it. Keys and whatever comes from outside are
-- bytea: a text column refuses some order ids, and its collation orders them.
-- Times are microseconds since 1970 in UTC, by this server's clock; 0: not known.

-- +goose Up
-- One row for each key. Its primary key decides a capture. What only an unfinished row
-- needs stands between captured_at and silent: due_at is NULL once nothing is left to do.
CREATE TABLE zabor_fences (
  order_id        bytea NOT NULL,
  scope           bytea NOT NULL,
  step            bytea NOT NULL,
  provider        bytea NOT NULL,
  account         bytea NOT NULL,
  address         varchar(64) COLLATE "C" NOT NULL,
  generation      bigint NOT NULL,
  provider_key    varchar(64) COLLATE "C" NOT NULL,
  amount_minor    bigint NOT NULL,
  currency        varchar(8) COLLATE "C" NOT NULL,
  message_fp      bytea NOT NULL,
  request_fp      bytea NOT NULL,
  fields          bytea NOT NULL,
  captured_at     bigint NOT NULL,
  request         bytea,
  prepare_key     varchar(64) COLLATE "C" NOT NULL,
  hook_data       bytea,
  hook_done       smallint NOT NULL,
  send_id         bytea NOT NULL,
  replays         bigint NOT NULL,
  lingers         smallint NOT NULL,
  lease           bigint NOT NULL,
  absent_after    bigint NOT NULL,
  hold_after      bigint NOT NULL,
  pending_for     bigint NOT NULL,
  send_until      bigint NOT NULL,
  replay_until    bigint NOT NULL,
  due_at          bigint,
  watcher         bytea NOT NULL,
  watch_until     bigint NOT NULL,
  watched         bigint NOT NULL,
  silent          bigint NOT NULL,
  state           varchar(16) COLLATE "C" NOT NULL,
  cause           varchar(16) COLLATE "C" NOT NULL,
  reason          varchar(1000) NOT NULL,
  epoch           bigint NOT NULL,
  attempt_id      bytea NOT NULL,
  prepared        bytea NOT NULL,
  reference       bytea NOT NULL,
  other_reference bytea NOT NULL,
  hook_due        varchar(64) COLLATE "C" NOT NULL,
  parked          bytea NOT NULL,
  forwarded       smallint NOT NULL,
  tries           bigint NOT NULL,
  unproven        bigint NOT NULL,
  state_since     bigint NOT NULL,
  answer_status   bigint,
  answer_header   text,
  answer_body     bytea,
  PRIMARY KEY (order_id, scope, step)
);
CREATE INDEX zabor_fences_captured ON zabor_fences (captured_at);
CREATE INDEX zabor_fences_due ON zabor_fences (due_at) WHERE due_at IS NOT NULL;

-- Whose reference is whose: two orders of one installation, provider and account may not share one.
CREATE TABLE zabor_references (
  reference    bytea NOT NULL,
  installation bytea NOT NULL,
  provider     bytea NOT NULL,
  account      bytea NOT NULL,
  address      varchar(64) COLLATE "C" NOT NULL,
  order_id     bytea NOT NULL,
  scope        bytea NOT NULL,
  step         bytea NOT NULL,
  noted_at     bigint NOT NULL,
  PRIMARY KEY (reference, installation, provider, account)
);
CREATE INDEX zabor_references_newest ON zabor_references (provider, account, address, noted_at);

CREATE TABLE zabor_notes (
  id       bytea NOT NULL,
  scope    bytea NOT NULL,
  order_id bytea NOT NULL,
  step     bytea NOT NULL,
  epoch    bigint NOT NULL,
  at       bigint NOT NULL,
  kind     varchar(32) NOT NULL,
  actor    bytea NOT NULL,
  note     text NOT NULL,
  PRIMARY KEY (id)
);
CREATE INDEX zabor_notes_key ON zabor_notes (order_id, scope, step, at);
CREATE INDEX zabor_notes_recent ON zabor_notes (kind, at);

CREATE TABLE zabor_unreadable (
  id     bytea NOT NULL,
  queue  bytea NOT NULL,
  bytes  bytea NOT NULL,
  reason varchar(1000) NOT NULL,
  at     bigint NOT NULL,
  PRIMARY KEY (id)
);
CREATE INDEX zabor_unreadable_recent ON zabor_unreadable (queue, at, id);

CREATE TABLE zabor_meta (
  name  bytea NOT NULL,
  value bytea NOT NULL,
  PRIMARY KEY (name)
);

CREATE TABLE zabor_processes (
  id      bytea NOT NULL,
  started bigint NOT NULL,
  seen    bigint NOT NULL,
  status  bytea NOT NULL,
  PRIMARY KEY (id)
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
