<?php

namespace App\Jobs;

use Illuminate\Bus\Queueable;
use Illuminate\Contracts\Queue\ShouldQueue;
use Illuminate\Database\QueryException;
use Illuminate\Queue\Middleware\WithoutOverlapping;
use Illuminate\Support\Facades\DB;
use Stripe\StripeClient;

class RefundOrder implements ShouldQueue
{
    use Queueable;

    public $orderId;

    public $timeout = 100;

    public function __construct($orderId)
    {
        $this->orderId = $orderId;
    }

    public function middleware()
    {
        return [new WithoutOverlapping($this->orderId)];
    }

    public function handle(StripeClient $stripe)
    {
        try {
            DB::table('fences')->insert(['order_id' => $this->orderId, 'step' => 'refund']);
        } catch (QueryException $e) {
            return $this->fail($e); // not ours: somebody has to look
        }

        $customer = $stripe->customers->retrieve('cus_1');
        $stripe->customers->update('cus_1', ['metadata' => ['refunded' => 1]]);

        $stripe->refunds->create([
            'charge' => $customer->metadata->charge,
        ], ['idempotency_key' => 'refund-'.$this->orderId]);
    }
}
