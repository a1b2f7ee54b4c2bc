<?php

namespace App\Jobs;

use Illuminate\Bus\Queueable;
use Illuminate\Contracts\Queue\ShouldQueue;
use Illuminate\Queue\InteractsWithQueue;
use Omnipay\Acquirer\Gateway;

class ChargeOrder implements ShouldQueue
{
    use InteractsWithQueue, Queueable;

    public $tries = 1;

    private string $orderId;

    private int $cents;

    public function __construct(string $orderId, int $cents)
    {
        $this->orderId = $orderId;
        $this->cents = $cents;
    }

    public function handle()
    {
        $gateway = new Gateway;
        $reference = $gateway->purchase($this->orderId, $this->cents);
        paid($this->orderId, $reference);
    }
}
