-- The fence and what belongs to it. Keys and whatever comes from outside are
-- bytea: a text column refuses some order ids, and its collation orders them.
-- Times are microseconds since 1970 in UTC, by this server's clock; 0: not known.

-- +goose Up
-- The permanent part of a row. Its primary key decides a capture. No index has a
-- column that a settlement changes, so that PostgreSQL keeps the row in its page (HOT).
CREATE TABLE zabor_fences (
  scope           bytea NOT NULL,
  order_id        bytea NOT NULL,
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
  PRIMARY KEY (scope, order_id, step)
) WITH (fillfactor = 70);
CREATE INDEX zabor_fences_captured ON zabor_fences (captured_at);
CREATE INDEX zabor_fences_order ON zabor_fences (order_id);

-- What an unfinished row needs: its request, deadlines and bindings, and the watch of resolvers.
CREATE TABLE zabor_open (
  scope        bytea NOT NULL,
  order_id     bytea NOT NULL,
  step         bytea NOT NULL,
  provider     bytea NOT NULL,
  pending      smallint NOT NULL,
  request      bytea,
  prepare_key  varchar(64) COLLATE "C" NOT NULL,
  hook_data    bytea,
  hook_done    smallint NOT NULL,
  send_id      bytea NOT NULL,
  replays      bigint NOT NULL,
  lease        bigint NOT NULL,
  absent_after bigint NOT NULL,
  hold_after   bigint NOT NULL,
  pending_for  bigint NOT NULL,
  send_until   bigint NOT NULL,
  replay_until bigint NOT NULL,
  due_at       bigint NOT NULL,
  watcher      bytea NOT NULL,
  watch_until  bigint NOT NULL DEFAULT 0,
  watched      bigint NOT NULL DEFAULT 0,
  silent       bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (scope, order_id, step)
);
CREATE INDEX zabor_open_due ON zabor_open (due_at);

-- Answers, for repeats of the same request. answered_at is 0 once header and body were erased.
CREATE TABLE zabor_answers (
  scope       bytea NOT NULL,
  order_id    bytea NOT NULL,
  step        bytea NOT NULL,
  status      bigint NOT NULL,
  header      text,
  body        bytea,
  answered_at bigint NOT NULL,
  PRIMARY KEY (scope, order_id, step)
);
CREATE INDEX zabor_answers_time ON zabor_answers (answered_at);

-- Whose reference is whose: two orders of one installation, provider and account may not share one.
CREATE TABLE zabor_references (
  reference    bytea NOT NULL,
  installation bytea NOT NULL,
  provider     bytea NOT NULL,
  account      bytea NOT NULL,
  address      varchar(64) COLLATE "C" NOT NULL,
  scope        bytea NOT NULL,
  order_id     bytea NOT NULL,
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
CREATE INDEX zabor_notes_key ON zabor_notes (scope, order_id, step, at);
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
  zabor_text(f.scope) AS scope, zabor_text(f.order_id) AS order_id, zabor_text(f.step) AS step,
  state, zabor_text(reference) AS reference,
  amount_minor, currency, a.status AS answer_status, a.body AS answer_body, reason,
  timestamptz 'epoch' + captured_at * interval '1 microsecond' AS captured_at,
  timestamptz 'epoch' + state_since * interval '1 microsecond' AS state_since
FROM zabor_fences f LEFT JOIN zabor_answers a ON a.scope = f.scope AND a.order_id = f.order_id AND a.step = f.step;
