<?php
// symfony_worker.php PORT DB REDELIVER_TIMEOUT
// A real messenger worker whose handler calls the proxy at $ZABOR_PROXY; it prints
// as laravel_worker.php does.

namespace App\Jobs {
    class ChargeOrder
    {
        public $orderId;
        protected $amountCents;
        public string $merchantId;
    }
}

namespace App\Message {
    class ChargeOrder extends \App\Jobs\ChargeOrder
    {
        public function charge(): array
        {
            return [(string) $this->orderId, $this->amountCents];
        }
    }
}

namespace {
    use Symfony\Component\EventDispatcher\EventDispatcher;
    use Symfony\Component\Messenger\Bridge\Redis\Transport\Connection;
    use Symfony\Component\Messenger\Bridge\Redis\Transport\RedisTransport;
    use Symfony\Component\Messenger\EventListener\SendFailedMessageForRetryListener;
    use Symfony\Component\Messenger\Handler\HandlersLocator;
    use Symfony\Component\Messenger\MessageBus;
    use Symfony\Component\Messenger\Middleware\HandleMessageMiddleware;
    use Symfony\Component\Messenger\Retry\MultiplierRetryStrategy;
    use Symfony\Component\Messenger\Transport\Serialization\PhpSerializer;
    use Symfony\Component\Messenger\Worker;
    use Symfony\Contracts\Service\ServiceLocatorTrait;

    error_reporting(E_ALL & ~E_DEPRECATED & ~E_USER_DEPRECATED);
    foreach (['EventDispatcher', 'HttpClient', 'Messenger', 'Messenger/Bridge/Redis'] as $package) {
        require_once "/usr/share/php/Symfony/Component/$package/autoload.php";
    }
    require __DIR__.'/jobs.php';

    [, $port, $db, $redeliver] = $argv;
    $transport = new RedisTransport(Connection::fromDsn("redis://127.0.0.1:$port/messages/symfony?dbindex=$db&delete_after_ack=true",
        ['redeliver_timeout' => (int) $redeliver, 'claim_interval' => 500]), new PhpSerializer);
    $bus = new MessageBus([new HandleMessageMiddleware(new HandlersLocator([
        App\Message\ChargeOrder::class => [function (App\Message\ChargeOrder $message) {
            [$order, $cents] = $message->charge();
            [$id, $replayed] = charge_symfony($order, $cents);
            echo "answered $order $replayed $id\n";
            usleep(100000);
        }],
    ]))]);
    $locator = fn (array $services) => new class($services) implements Psr\Container\ContainerInterface { use ServiceLocatorTrait; };
    $events = new EventDispatcher;
    $events->addSubscriber(new SendFailedMessageForRetryListener(
        $locator(['async' => fn () => $transport]),
        $locator(['async' => fn () => new MultiplierRetryStrategy(1000, 200, 1)]),
        new class extends Psr\Log\AbstractLogger {
            public function log($level, $message, array $context = []): void
            {
                fwrite(STDERR, substr(strtr($message, array_map('strval', array_filter($context, 'is_scalar'))).' '.(isset($context['exception']) ? $context['exception']->getMessage() : ''), 0, 300)."\n");
            }
        },
        $events,
    ));
    echo "started\n";
    (new Worker(['async' => $transport], $bus, $events))->run(['sleep' => 100000]);
}
