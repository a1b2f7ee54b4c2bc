<?php

namespace App\Jobs;

use Illuminate\Bus\Queueable;
use Illuminate\Contracts\Queue\ShouldQueue;
use Illuminate\Queue\Middleware\WithoutOverlapping;
use Illuminate\Support\Facades\DB;
use Stripe\StripeClient;

class RefundOrder implements ShouldQueue
{
    use Queueable;

    public $orderId;

    public $timeout = 60;

    public function __construct($orderId)
    {
        $this->orderId = $orderId;
    }

    public function middleware()
    {
        return [new WithoutOverlapping($this->orderId)]; // ZB151
    }

    public function handle(StripeClient $stripe)
    {
        DB::table('refunds')->updateOrInsert( // ZB153
            ['order_id' => $this->orderId],
            ['state' => 'started']
        );

        $customer = $stripe->customers->retrieve('cus_1');

        $stripe->refunds->create([ // ZB111
            'charge' => $customer->metadata->charge,
        ], ['idempotency_key' => 'refund-'.$this->orderId.'-'.$this->attempts()]); // ZB152
    }
}
