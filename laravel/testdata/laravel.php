<?php
// A queue connection of Laravel on the Redis server of the test, and jobs for it.
// Arguments: PORT DATABASE PREFIX QUEUE …

use Illuminate\Container\Container;
use Illuminate\Queue\InteractsWithQueue;
use Illuminate\Queue\RedisQueue;
use Illuminate\Redis\RedisManager;

require '/usr/share/php/Illuminate/Container/autoload.php';
require '/usr/share/php/Illuminate/Redis/autoload.php';
require '/usr/share/php/Illuminate/Queue/autoload.php';

enum Currency: string
{
    case Euro = 'EUR';
}

class ChargeOrder
{
    public $orderId;
    public ?Currency $currency = Currency::Euro;
    public $lines = [['sku' => "a\"b\0c", 'price' => 0.1], ['sku' => 'Zoë 😀', 'price' => 100.0]];
    public $self;
    protected $amountCents = 129900;
    private $secret = 'p';

    public function __construct($orderId)
    {
        $this->orderId = $orderId;
        $this->self = (object) ['a' => 1];
        $this->lines['same'] = $this->self;
    }

    public function seen(): array
    {
        return ['orderId' => $this->orderId, 'currency' => $this->currency->value, 'amountCents' => $this->amountCents,
            'secret' => $this->secret, 'sku' => bin2hex($this->lines[0]['sku']), 'same' => $this->lines['same'] === $this->self];
    }
}

[, $port, $database, $prefix, $name] = $argv;

function queue(int $retryAfter): RedisQueue
{
    global $port, $database, $prefix;
    $app = new Container;
    $redis = new RedisManager($app, 'phpredis', [
        'options' => ['prefix' => $prefix],
        'default' => ['host' => '127.0.0.1', 'port' => $port, 'database' => $database],
    ]);
    $queue = new RedisQueue($redis, 'default', 'default', $retryAfter);
    $queue->setContainer($app);
    $queue->setConnectionName('redis');

    return $queue;
}
