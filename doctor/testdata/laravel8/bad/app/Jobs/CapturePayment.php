<?php

namespace App\Jobs;

use App\Models\Payment;
use Illuminate\Bus\Queueable;
use Illuminate\Contracts\Queue\ShouldQueue;
use YooKassa\Client;

class CapturePayment implements ShouldQueue
{
    use Queueable;

    public $orderId;

    public function handle(Client $client)
    {
        if (Payment::where('order_id', $this->orderId)->exists()) { // ZB154
            return;
        }

        $payment = $client->capturePayment(
            ['amount' => ['value' => '19.99', 'currency' => 'RUB']],
            'pay_1',
            'capture-'.$this->orderId
        );

        Payment::create(['order_id' => $this->orderId, 'ref' => $payment->getId()]);
    }
}
