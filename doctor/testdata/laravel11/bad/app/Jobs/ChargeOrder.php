<?php

namespace App\Jobs;

use App\Payments\Gateway;
use Illuminate\Contracts\Queue\ShouldQueue;
use Illuminate\Foundation\Queue\Queueable;
use Illuminate\Support\Facades\Cache;

class ChargeOrder implements ShouldQueue
{
    use Queueable;

    public function __construct(public readonly string $orderId, public readonly int $cents) {}

    public function handle(Gateway $gateway): void
    {
        $lock = Cache::lock('charge-'.$this->orderId, 60); // ZB151

        if ($lock->get()) {
            $gateway->charge($this->orderId, $this->cents, $this->attempts());
        }
    }
}
