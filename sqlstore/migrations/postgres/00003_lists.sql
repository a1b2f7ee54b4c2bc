-- What people page through: the messages of a queue that nobody could decode.

-- +goose Up
CREATE INDEX zabor_unreadable_recent ON zabor_unreadable (queue, at, id);
