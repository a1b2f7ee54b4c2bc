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
use Illuminate\Support\Str;

class ChargeOrder implements ShouldQueue, ShouldBeUnique // ZB151
{
    use Dispatchable, InteractsWithQueue, Queueable, SerializesModels;

    public $timeout = 300; // ZB110

    public $tries = 0; // ZB120

    private $order;

    public function __construct(Order $order)
    {
        $this->order = $order;
    }

    public function handle()
    {
        $key = (string) Str::uuid();

        $response = Http::withHeaders(['Idempotency-Key' => $key]) // ZB152
            ->retry(3, 100) // ZB122
            ->post('https://api.stripe.com/v1/charges', [ // ZB150 ZB111
                'amount' => $this->order->total,
                'currency' => 'eur',
            ]);

        $this->order->update(['payment_ref' => $response->json('id')]);
    }
}
