-- What people look for: what changed last, an order in whatever scope, a
-- reference; what happened lately; and which processes are alive.

-- +goose Up
CREATE INDEX zabor_fences_recent ON zabor_fences (state, state_since, step);
CREATE INDEX zabor_fences_order ON zabor_fences (order_id, scope, step);
CREATE INDEX zabor_fences_reference ON zabor_fences (reference, state) WHERE reference > ''::bytea;
CREATE INDEX zabor_fences_other ON zabor_fences (other_reference) WHERE other_reference > ''::bytea;
CREATE INDEX zabor_notes_recent ON zabor_notes (kind, at);

CREATE TABLE zabor_processes (
  id      bytea  NOT NULL PRIMARY KEY,
  started bigint NOT NULL,
  seen    bigint NOT NULL,
  status  bytea  NOT NULL
);
