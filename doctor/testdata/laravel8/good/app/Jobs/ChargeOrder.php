<?php

namespace App\Jobs;

use App\Models\Order;
use Illuminate\Bus\Queueable;
use Illuminate\Contracts\Queue\ShouldBeUnique;
use Illuminate\Contracts\Queue\ShouldQueue;
use Illuminate\Foundation\Bus\Dispatchable;
use Illuminate\Queue\InteractsWithQueue;
use Illuminate\Queue\SerializesModels;
use Illuminate\Support\Facades\Http;

class ChargeOrder implements ShouldQueue, ShouldBeUnique
{
    use Dispatchable, InteractsWithQueue, Queueable, SerializesModels;

    public $timeout = 120;

    public $tries = 3;

    private $order;

    public function __construct(Order $order)
    {
        $this->order = $order;
    }

    public function handle()
    {
        // zabor is the fence: it puts the idempotency key in, and gives a repeat
        // the saved answer.
        $response = Http::withHeaders(['Zabor-Order' => $this->order->id, 'Zabor-Step' => 'charge'])
            ->timeout(40)
            ->post('http://127.0.0.1:8070/stripe/v1/charges', [
                'amount' => $this->order->total,
                'currency' => 'eur',
            ]);

        $this->order->update(['payment_ref' => $response->json('id')]);
    }
}
