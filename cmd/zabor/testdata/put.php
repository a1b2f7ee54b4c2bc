<?php
// Puts messages on queues as a shop's own application does, through Laravel's queue
// and Symfony's Redis transport. Standard input is a JSON list of
// {"to": "laravel" | "symfony-php" | "symfony-json", "port", "db", "class", "properties"}.

namespace App\Jobs {
    class ChargeOrder
    {
        public $orderId;
        protected $amountCents;
        public string $merchantId; // left out of the serialized text while it is not set

        public function __construct(array $properties)
        {
            foreach ($properties as $name => $value) {
                $this->$name = $value;
            }
        }
    }

    class ChargeForMerchant extends ChargeOrder
    {
    }

    class SendMail extends ChargeOrder
    {
    }
}

namespace App\Message {
    class ChargeOrder extends \App\Jobs\ChargeOrder
    {
        public function properties(): array
        {
            return get_object_vars($this);
        }
    }

    class SendMail extends ChargeOrder
    {
    }
}

namespace {
    use Illuminate\Container\Container;
    use Illuminate\Queue\RedisQueue;
    use Illuminate\Redis\RedisManager;
    use Symfony\Component\Messenger\Bridge\Redis\Transport\Connection;
    use Symfony\Component\Messenger\Bridge\Redis\Transport\RedisTransport;
    use Symfony\Component\Messenger\Envelope;
    use Symfony\Component\Messenger\Transport\Serialization\PhpSerializer;
    use Symfony\Component\Messenger\Transport\Serialization\SerializerInterface;

    require '/usr/share/php/Illuminate/Container/autoload.php';
    require '/usr/share/php/Illuminate/Redis/autoload.php';
    require '/usr/share/php/Illuminate/Queue/autoload.php';
    require '/usr/share/php/Symfony/Component/Messenger/autoload.php';
    require '/usr/share/php/Symfony/Component/Messenger/Bridge/Redis/autoload.php';

    // What Symfony's JSON serializer writes; Debian does not pack that component.
    class JsonSerializer implements SerializerInterface
    {
        public function encode(Envelope $envelope): array
        {
            $message = $envelope->getMessage();
            $flags = JSON_PRESERVE_ZERO_FRACTION | JSON_THROW_ON_ERROR;

            return ['body' => json_encode($message->properties(), $flags),
                'headers' => ['type' => get_class($message), 'Content-Type' => 'application/json']];
        }

        public function decode(array $encodedEnvelope): Envelope
        {
            throw new LogicException('only puts');
        }
    }

    function laravel(int $port, int $db): RedisQueue
    {
        $app = new Container;
        $redis = new RedisManager($app, 'phpredis', [
            'options' => ['prefix' => 'laravel_database_'],
            'default' => ['host' => '127.0.0.1', 'port' => $port, 'database' => $db],
        ]);
        $queue = new RedisQueue($redis, 'default', 'default', 90);
        $queue->setContainer($app);
        $queue->setConnectionName('redis');

        return $queue;
    }

    function symfony(int $port, int $db, SerializerInterface $serializer): RedisTransport
    {
        return new RedisTransport(Connection::fromDsn("redis://127.0.0.1:$port/messages/symfony?dbindex=$db&delete_after_ack=true"), $serializer);
    }

    $open = [];
    foreach (json_decode(stream_get_contents(STDIN), true, 512, JSON_THROW_ON_ERROR) as $put) {
        ['to' => $to, 'port' => $port, 'db' => $db, 'class' => $class, 'properties' => $properties] = $put;
        $name = "$to $port $db";
        if (!isset($open[$name])) {
            $open = []; // one connection at a time: lists come queue by queue
            $open[$name] = match ($to) {
                'laravel' => laravel($port, $db),
                'symfony-php' => symfony($port, $db, new PhpSerializer),
                'symfony-json' => symfony($port, $db, new JsonSerializer),
            };
        }
        $message = new $class($properties);
        $to === 'laravel' ? $open[$name]->push($message, '', 'payments') : $open[$name]->send(new Envelope($message));
    }
}
