<?php
// A shop that orders charges on a Redis list, by Laravel's own queue:
//
//   php laravel.php ORDER [CENTS]
//
// Of an application it is the line ChargeOrder::dispatch($order, $cents)->onQueue('payments').

namespace {
    error_reporting(E_ALL & ~E_DEPRECATED & ~E_USER_DEPRECATED);
    foreach (['Container', 'Redis', 'Queue', 'Bus'] as $part) {
        require_once "/usr/share/php/Illuminate/$part/autoload.php";
    }
}

namespace App\Jobs {
    class ChargeOrder implements \Illuminate\Contracts\Queue\ShouldQueue
    {
        use \Illuminate\Bus\Queueable, \Illuminate\Queue\InteractsWithQueue;

        public function __construct(public string $orderId, public int $cents)
        {
        }

        public function handle()
        {
            $this->fail(new \LogicException('zabor charges this order'));
        }
    }
}

namespace {
    $app = new Illuminate\Container\Container;
    $redis = new Illuminate\Redis\RedisManager($app, 'phpredis', [
        'options' => ['prefix' => 'laravel_database_'],
        'default' => ['host' => getenv('REDIS_HOST') ?: '127.0.0.1', 'port' => getenv('REDIS_PORT') ?: 6379, 'database' => 0],
    ]);
    $queue = new Illuminate\Queue\RedisQueue($redis, 'payments', 'default', 90);
    $queue->setContainer($app);
    $queue->push(new App\Jobs\ChargeOrder($argv[1], (int) ($argv[2] ?? 1999)), '', 'payments');
    echo "order {$argv[1]} is on the queue payments\n";
}
