-- What people look for: what changed last, an order in whatever scope, a
-- reference; what happened lately; and which processes are alive.
-- A table's indexes are one statement, which does nothing where they are there:
-- this server commits each statement by itself, and a migration that was broken
-- off is begun again.

-- +goose Up
CREATE TABLE IF NOT EXISTS zabor_processes (
  id      BINARY(16) NOT NULL,
  started BIGINT     NOT NULL,
  seen    BIGINT     NOT NULL,
  status  MEDIUMBLOB NOT NULL,
  PRIMARY KEY (id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

SET @zabor = IF((SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'zabor_fences' AND index_name = 'zabor_fences_recent') > 0, 'DO 0',
  'ALTER TABLE zabor_fences ADD KEY zabor_fences_recent (state, state_since, step), ADD KEY zabor_fences_order (order_id), ADD KEY zabor_fences_reference (reference, state), ADD KEY zabor_fences_other (other_reference)');
PREPARE zabor FROM @zabor;
EXECUTE zabor;
DEALLOCATE PREPARE zabor;

SET @zabor = IF((SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'zabor_notes' AND index_name = 'zabor_notes_recent') > 0, 'DO 0',
  'ALTER TABLE zabor_notes ADD KEY zabor_notes_recent (kind, at)');
PREPARE zabor FROM @zabor;
EXECUTE zabor;
DEALLOCATE PREPARE zabor;
