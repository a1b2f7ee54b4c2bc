-- What people page through: the messages of a queue that nobody could decode.

-- +goose Up
SET @zabor = IF((SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'zabor_unreadable' AND index_name = 'zabor_unreadable_recent') > 0, 'DO 0',
  'ALTER TABLE zabor_unreadable ADD KEY zabor_unreadable_recent (queue, at, id)');
PREPARE zabor FROM @zabor;
EXECUTE zabor;
DEALLOCATE PREPARE zabor;
