<?php
// send.php DSN DELAY_MS MESSAGE...
// Sends App\Message\Charge for each order id, or App\Message\Pair for "pair", with
// PhpSerializer. An id that starts with json: goes as the JSON serializer writes it.

require __DIR__.'/symfony.php';

use Symfony\Component\Messenger\Bridge\Redis\Transport\RedisSender;
use Symfony\Component\Messenger\Envelope;
use Symfony\Component\Messenger\Stamp\BusNameStamp;
use Symfony\Component\Messenger\Stamp\DelayStamp;
use Symfony\Component\Messenger\Transport\Serialization\PhpSerializer;

[, $dsn, $delay] = $argv;
$connection = redis($dsn);
$sender = new RedisSender($connection, new PhpSerializer());
foreach (array_slice($argv, 3) as $order) {
    if (0 === strpos($order, 'json:')) {
        $connection->add(json_encode(['orderId' => substr($order, 5)]), ['type' => 'App\Message\Charge', 'Content-Type' => 'application/json'], (int) $delay);
        continue;
    }
    $stamps = [new BusNameStamp('messenger.bus.default')];
    if ($delay > 0) {
        $stamps[] = new DelayStamp((int) $delay);
    }
    $sender->send(new Envelope('pair' === $order ? new App\Message\Pair() : new App\Message\Charge($order), $stamps));
}
