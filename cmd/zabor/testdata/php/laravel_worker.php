<?php
// laravel_worker.php PORT DB RETRY_AFTER
// A real queue worker of Laravel whose job calls the proxy at $ZABOR_PROXY. For
// each answer it prints "answered ORDER REPLAYED"; then it works on for a while
// before the job ends and is acked, so that it can be killed there.

error_reporting(E_ALL & ~E_DEPRECATED & ~E_USER_DEPRECATED);
foreach (['GuzzleHttp', 'Illuminate/Http', 'Illuminate/Container', 'Illuminate/Events', 'Illuminate/Bus', 'Illuminate/Redis', 'Illuminate/Queue'] as $package) {
    require_once "/usr/share/php/$package/autoload.php";
}
require __DIR__.'/jobs.php';
require __DIR__.'/laravel_job.php';

[, $port, $db, $retryAfter] = $argv;
$app = new Illuminate\Container\Container;
Illuminate\Container\Container::setInstance($app);
$events = new Illuminate\Events\Dispatcher($app);
$app->instance(Illuminate\Contracts\Events\Dispatcher::class, $events);
$app->instance('events', $events);
$app->instance(Illuminate\Contracts\Bus\Dispatcher::class, new Illuminate\Bus\Dispatcher($app));
$app->instance(Illuminate\Contracts\Container\Container::class, $app);
$redis = new Illuminate\Redis\RedisManager($app, 'phpredis', [
    'options' => ['prefix' => 'laravel_database_'],
    'default' => ['host' => '127.0.0.1', 'port' => $port, 'database' => $db],
]);
$app->instance('config', new ArrayObject(['queue.default' => 'redis', 'queue.connections.redis' => [
    'driver' => 'redis', 'connection' => 'default', 'queue' => 'payments', 'retry_after' => (int) $retryAfter, 'block_for' => null,
]]));
$manager = new Illuminate\Queue\QueueManager($app);
$manager->addConnector('redis', fn () => new Illuminate\Queue\Connectors\RedisConnector($redis));
$handler = new class implements Illuminate\Contracts\Debug\ExceptionHandler {
    public function report(Throwable $e) { fwrite(STDERR, get_class($e).': '.substr($e->getMessage(), 0, 300)."\n"); }
    public function shouldReport(Throwable $e) { return true; }
    public function render($request, Throwable $e) { throw $e; }
    public function renderForConsole($output, Throwable $e) {}
};
$worker = new Illuminate\Queue\Worker($manager, $events, $handler, fn () => false);
echo "started\n";
// name, backoff, memory, timeout, sleep, tries, force
$worker->daemon('redis', 'payments', new Illuminate\Queue\WorkerOptions('default', 1, 256, 60, 0.1, 1000));
