<?php
// promote.php DSN
// Takes a message off the transport without reading it, as PHP's receiver does: a
// due message of the delayed set is added to the stream first.

require __DIR__.'/symfony.php';

$connection = redis($argv[1]);
for ($end = microtime(true) + 20; microtime(true) < $end;) {
    if ($connection->get() !== null) {
        exit(0);
    }
}
exit(1);
