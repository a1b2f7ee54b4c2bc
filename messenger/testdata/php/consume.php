<?php
// consume.php DSN N
// Takes and acks N messages as PHP's worker does, and prints each as JSON.

require __DIR__.'/symfony.php';

use Symfony\Component\Messenger\Bridge\Redis\Transport\RedisReceiver;
use Symfony\Component\Messenger\Transport\Serialization\PhpSerializer;

[, $dsn, $n] = $argv;
$receiver = new RedisReceiver(redis($dsn), new PhpSerializer());
for ($end = microtime(true) + 20; $n > 0 && microtime(true) < $end;) {
    foreach ($receiver->get() as $envelope) {
        echo told($envelope);
        $receiver->ack($envelope);
        --$n;
    }
}
exit($n > 0 ? 1 : 0);
