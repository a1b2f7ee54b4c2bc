<?php
// The PHP side of a shop whose queues zabor works too, made of Laravel's and Symfony's own classes:
//
//   php app.php work laravel|symfony PORT DB PROVIDER TRIES  a worker of payments (or the stream messages) and then of default
//   php app.php retry laravel MYSQL_PORT DATABASE PORT DB  php artisan queue:retry all
//   php app.php retry symfony MYSQL_PORT DATABASE PORT DB  php bin/console messenger:failed:retry ID… --force
//
// A worker first says "ready" on the list php:said and waits for an element of php:go. It tells each message that it handles
// on php:handled. Its handler of a charge calls PROVIDER itself; that of SendMail does nothing more; one whose order begins
// with "hang" does not return. It ends when php:stop exists.

namespace App\Jobs {
    class ChargeOrder
    {
        public $orderId;
        protected $amountCents;
        public string $merchantId;

        public function handle()
        {
            \handled($this->orderId, static::class, $this->amountCents);
        }
    }

    class SendMail extends ChargeOrder
    {
    }
}

namespace App\Message {
    class ChargeOrder extends \App\Jobs\ChargeOrder
    {
    }

    class SendMail extends \App\Jobs\ChargeOrder
    {
    }
}

namespace {
    use Illuminate\Container\Container;
    use Illuminate\Queue\Connectors\RedisConnector;
    use Illuminate\Queue\QueueManager;
    use Illuminate\Redis\RedisManager;
    use Symfony\Component\EventDispatcher\EventDispatcher;
    use Symfony\Component\Messenger\Bridge\Redis\Transport\Connection;
    use Symfony\Component\Messenger\Bridge\Redis\Transport\RedisTransport;
    use Symfony\Component\Messenger\Handler\HandlersLocator;
    use Symfony\Component\Messenger\MessageBus;
    use Symfony\Component\Messenger\Middleware\HandleMessageMiddleware;
    use Symfony\Component\Messenger\Middleware\SendMessageMiddleware;
    use Symfony\Component\Messenger\Transport\Sender\SendersLocator;
    use Symfony\Component\Messenger\Transport\Serialization\PhpSerializer;
    use Symfony\Contracts\Service\ServiceLocatorTrait;
    use Symfony\Contracts\Service\ServiceProviderInterface;

    error_reporting(E_ALL & ~E_DEPRECATED & ~E_USER_DEPRECATED);
    foreach (['Illuminate/Container', 'Illuminate/Redis', 'Illuminate/Queue', 'Illuminate/Bus', 'Illuminate/Events', 'Illuminate/Console', 'Illuminate/Database',
        'Symfony/Component/Messenger', 'Symfony/Component/Messenger/Bridge/Redis', 'Symfony/Component/Messenger/Bridge/Doctrine',
        'Symfony/Component/EventDispatcher', 'Symfony/Component/Console', 'Doctrine/DBAL'] as $part) {
        require_once "/usr/share/php/$part/autoload.php";
    }

    class Locator implements ServiceProviderInterface
    {
        use ServiceLocatorTrait;
    }

    class Errors implements Illuminate\Contracts\Debug\ExceptionHandler
    {
        public function report(Throwable $e)
        {
            fwrite(STDERR, "$e\n");
        }

        public function shouldReport(Throwable $e)
        {
            return true;
        }

        public function render($request, Throwable $e)
        {
        }

        public function renderForConsole($output, Throwable $e)
        {
        }
    }

    function store(int $port, int $db): Redis
    {
        $redis = new Redis;
        $redis->connect('127.0.0.1', $port);
        $redis->select($db);

        return $redis;
    }

    // handled is what every handler does.
    function handled($order, string $class, ?int $cents): void
    {
        global $told, $provider;
        if (strpos((string) $order, 'hang') === 0) {
            $told->rPush('php:said', "begun $order");
            while (true) {
                sleep(60);
            }
        }
        if (substr($class, -8) !== 'SendMail') {
            $answer = file_get_contents("$provider/payments", false, stream_context_create(['http' => ['method' => 'POST',
                'header' => "Content-Type: application/json\r\nIdempotency-Key: php-".bin2hex(random_bytes(8))."\r\n",
                'content' => json_encode(['order' => (string) $order, 'amount' => $cents, 'currency' => 'EUR'])]]));
            if ($answer === false) {
                throw new RuntimeException("the provider did not take order $order");
            }
        }
        $told->rPush('php:handled', json_encode(['order' => (string) $order, 'class' => $class, 'cents' => $cents]));
    }

    function laravel(int $port, int $db): Container
    {
        $app = new Container;
        Container::setInstance($app);
        $app->instance('config', new Illuminate\Support\Fluent(['queue.default' => 'redis',
            'queue.connections.redis' => ['driver' => 'redis', 'connection' => 'default', 'queue' => 'default', 'retry_after' => 8]]));
        $redis = new RedisManager($app, 'phpredis', [
            'options' => ['prefix' => 'laravel_database_'],
            'default' => ['host' => '127.0.0.1', 'port' => $port, 'database' => $db],
        ]);
        $manager = new QueueManager($app);
        $manager->addConnector('redis', fn () => new RedisConnector($redis));
        $app->instance('queue', $manager);
        $app->instance('events', new Illuminate\Events\Dispatcher($app));
        $app->instance(Illuminate\Contracts\Container\Container::class, $app);
        $app->singleton(Illuminate\Contracts\Bus\Dispatcher::class, fn () => new Illuminate\Bus\Dispatcher($app));

        return $app;
    }

    function stream(int $port, int $db, string $name): RedisTransport
    {
        return new RedisTransport(Connection::fromDsn("redis://127.0.0.1:$port/$name/symfony/php-".getmypid()."?dbindex=$db&delete_after_ack=true&redeliver_timeout=5&claim_interval=500"), new PhpSerializer);
    }

    [, $what, $framework] = $argv;
    if ($what === 'work') {
        [, , , $port, $db, $provider, $tries] = $argv;
        $told = store($port, $db);
        $told->setOption(Redis::OPT_READ_TIMEOUT, -1);
        if ($framework === 'laravel') {
            $app = laravel($port, $db);
            $worker = new Illuminate\Queue\Worker($app['queue'], $app['events'], new Errors, fn () => false);
            $options = new Illuminate\Queue\WorkerOptions('default', 0, 128, 3600, 0, (int) $tries);
        } else {
            $events = new EventDispatcher;
            $bus = new MessageBus([new HandleMessageMiddleware(new HandlersLocator(['*' => [
                fn (App\Jobs\ChargeOrder $m) => $m->handle(),
            ]]))]);
            $worker = new Symfony\Component\Messenger\Worker(['async' => stream($port, $db, 'messages'), 'default' => stream($port, $db, 'default')], $bus, $events);
            $events->addListener(Symfony\Component\Messenger\Event\WorkerRunningEvent::class, function ($event) use ($told) {
                if ($told->exists('php:stop')) {
                    $event->getWorker()->stop();
                }
            });
        }
        $told->rPush('php:said', 'ready');
        $told->blPop(['php:go'], 0);
        if ($framework === 'symfony') {
            $worker->run(['sleep' => 5000]);
        }
        while ($framework === 'laravel' && !$told->exists('php:stop')) {
            $worker->runNextJob('redis', 'payments,default', $options);
        }
        exit(0);
    }

    [, , , $mysql, $database, $port, $db] = $argv;
    $out = new Symfony\Component\Console\Output\BufferedOutput;
    if ($framework === 'laravel') {
        $app = laravel($port, $db);
        $capsule = new Illuminate\Database\Capsule\Manager;
        $capsule->addConnection(['driver' => 'mysql', 'host' => '127.0.0.1', 'port' => $mysql, 'database' => $database, 'username' => 'root', 'password' => '', 'charset' => 'utf8mb4'], 'app');
        $app->instance('queue.failer', new Illuminate\Queue\Failed\DatabaseUuidFailedJobProvider($capsule->getDatabaseManager(), 'app', 'failed_jobs'));
        $command = new Illuminate\Queue\Console\RetryCommand;
        $command->setLaravel($app);
        $code = $command->run(new Symfony\Component\Console\Input\ArrayInput(['id' => ['all']]), $out);
    } else {
        $dbal = Doctrine\DBAL\DriverManager::getConnection(['url' => "pdo-mysql://root@127.0.0.1:$mysql/$database?charset=utf8mb4"]);
        $failed = new Symfony\Component\Messenger\Bridge\Doctrine\Transport\DoctrineTransport(new Symfony\Component\Messenger\Bridge\Doctrine\Transport\Connection(
            ['table_name' => 'messenger_messages', 'queue_name' => 'failed', 'redeliver_timeout' => 3600, 'auto_setup' => false], $dbal), new PhpSerializer);
        // What the documentation asks of an application: the class stays routed to zabor's transport, and its
        // handler in PHP sends it there again.
        $senders = new SendersLocator([App\Message\ChargeOrder::class => ['async']], new Locator(['async' => fn () => stream($port, $db, 'messages')]));
        $bus = new MessageBus([new SendMessageMiddleware($senders), new HandleMessageMiddleware(new HandlersLocator([App\Message\ChargeOrder::class => [
            function (App\Message\ChargeOrder $m) use (&$bus) {
                $bus->dispatch($m);
            },
        ]]))]);
        $ids = [];
        foreach ($failed->all() as $envelope) {
            $ids[] = $envelope->last(Symfony\Component\Messenger\Stamp\TransportMessageIdStamp::class)->getId();
        }
        $command = new Symfony\Component\Messenger\Command\FailedMessagesRetryCommand('failed', new Locator(['failed' => fn () => $failed]), $bus, new EventDispatcher);
        $input = new Symfony\Component\Console\Input\ArrayInput(['id' => $ids, '--force' => true, '--transport' => 'failed']);
        $input->setInteractive(false);
        $code = $command->run($input, $out);
    }
    echo $out->fetch();
    exit($code);
}
