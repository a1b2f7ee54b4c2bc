<?php
// A shop that orders charges on a Redis stream, by Symfony Messenger's own transport:
//
//   php symfony.php ORDER [CENTS]
//
// Of an application it is the line $bus->dispatch(new ChargeOrder($order, $cents)).

namespace App\Message {
    final class ChargeOrder
    {
        public function __construct(public string $orderId, public int $cents)
        {
        }
    }
}

namespace {
    error_reporting(E_ALL & ~E_DEPRECATED & ~E_USER_DEPRECATED);
    foreach (['', '/Bridge/Redis'] as $part) {
        require_once "/usr/share/php/Symfony/Component/Messenger$part/autoload.php";
    }

    use Symfony\Component\Messenger\Bridge\Redis\Transport\Connection;
    use Symfony\Component\Messenger\Bridge\Redis\Transport\RedisTransport;

    $dsn = getenv('MESSENGER_TRANSPORT_DSN') ?: 'redis://127.0.0.1:6379/charges/symfony';
    $transport = new RedisTransport(Connection::fromDsn($dsn, ['delete_after_ack' => true]));
    $transport->send(new Symfony\Component\Messenger\Envelope(new App\Message\ChargeOrder($argv[1], (int) ($argv[2] ?? 1999))));
    echo "order {$argv[1]} is on the stream charges\n";
}
