<?php
// Runs Laravel's own `php artisan queue:retry UUID`.
// Arguments: PORT DATABASE PREFIX QUEUE SQLITE_FILE UUID.

require __DIR__.'/laravel.php';
require '/usr/share/php/Illuminate/Database/autoload.php';
require '/usr/share/php/Illuminate/Console/autoload.php';

use Illuminate\Container\Container;
use Illuminate\Queue\Console\RetryCommand;
use Illuminate\Queue\Failed\DatabaseUuidFailedJobProvider;
use Symfony\Component\Console\Input\ArrayInput;
use Symfony\Component\Console\Output\BufferedOutput;

[, , , , , $file, $uuid] = $argv;
$capsule = new Illuminate\Database\Capsule\Manager;
$capsule->addConnection(['driver' => 'sqlite', 'database' => $file], 'app');

$app = new Container;
$app->instance('queue.failer', new DatabaseUuidFailedJobProvider($capsule->getDatabaseManager(), 'app', 'failed_jobs'));
$app->instance('events', new class {
    public function dispatch($event)
    {
    }
});
$app->instance('queue', new class(queue(90)) {
    public function __construct(private $queue)
    {
    }

    public function connection($name)
    {
        if ($name !== 'redis') {
            throw new RuntimeException("no queue connection $name");
        }

        return $this->queue;
    }
});

$command = new RetryCommand;
$command->setLaravel($app);
$output = new BufferedOutput;
$code = $command->run(new ArrayInput(['id' => [$uuid]]), $output);
echo $output->fetch();
exit($code);
