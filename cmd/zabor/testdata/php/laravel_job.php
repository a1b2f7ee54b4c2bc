<?php

namespace App\Jobs;

class ChargeOrder implements \Illuminate\Contracts\Queue\ShouldQueue
{
    use \Illuminate\Queue\InteractsWithQueue;

    public $orderId;
    public $tries = 1000;
    protected $amountCents;

    public function handle(): void
    {
        [$id, $replayed] = \charge_laravel_http((string) $this->orderId, $this->amountCents);
        echo "answered {$this->orderId} $replayed $id\n";
        usleep(100000);
    }
}
