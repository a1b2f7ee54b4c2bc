<?php
// Pushes the first job of a chain, or the next job of one as PHP itself does after a
// success. Arguments: PORT DATABASE PREFIX QUEUE ACTION; ACTION is push, or next
// followed by the file with the payload of the job that has succeeded.

require __DIR__.'/laravel.php';

// What a chained job has of the trait Illuminate\Bus\Queueable of 8.83, whose
// component need not be installed.
trait Queueable
{
    public $connection;
    public $queue;
    public $chainConnection;
    public $chainQueue;
    public $chainCatchCallbacks;
    public $delay;
    public $afterCommit;
    public $middleware = [];
    public $chained = [];

    public function dispatchNextJobInChain($queue)
    {
        if (empty($this->chained)) {
            return;
        }
        $next = unserialize(array_shift($this->chained));
        $next->chained = $this->chained;
        $next->connection = $next->connection ?: $this->chainConnection;
        $next->queue = $next->queue ?: $this->chainQueue;
        $next->chainConnection = $this->chainConnection;
        $next->chainQueue = $this->chainQueue;
        $next->chainCatchCallbacks = $this->chainCatchCallbacks;
        if (isset($next->delay)) {
            $queue->later($next->delay, $next, '', $next->queue);
        } else {
            $queue->push($next, '', $next->queue);
        }
    }
}

class Charge
{
    use Queueable;

    public $orderId;

    public function __construct($orderId)
    {
        $this->orderId = $orderId;
    }

    public function seen(): array
    {
        return ['orderId' => $this->orderId, 'left' => count($this->chained)];
    }
}

class Ship extends Charge
{
    public $tries = 3;
    public $timeout = 45;
    public $backoff = [10, 60];
    public $failOnTimeout = true;
    public $note = "Zoë 😀 </b> \0 \u{2028}";
    private $secret = 'p';
}

$action = $argv[5];
if ($action === 'push') {
    $first = new Charge(1);
    $first->chainQueue = $first->queue = $name;
    $last = new Charge(3);
    $last->delay = 1;
    $first->chained = [serialize(new Ship(2)), serialize($last)];
    queue(90)->push($first, '', $name);
} elseif ($action === 'next') {
    $payload = json_decode(file_get_contents($argv[6]), true);
    unserialize($payload['data']['command'])->dispatchNextJobInChain(queue(90));
} else { // run: as a worker of Laravel that succeeds
    $queue = queue(90);
    $job = $queue->pop($name);
    $command = unserialize($job->payload()['data']['command']);
    $command->dispatchNextJobInChain($queue);
    $job->delete();
    echo json_encode($command->seen() + ['class' => get_class($command), 'tries' => $job->maxTries(), 'timeout' => $job->timeout(), 'note' => bin2hex($command->note ?? '')]), "\n";
}
