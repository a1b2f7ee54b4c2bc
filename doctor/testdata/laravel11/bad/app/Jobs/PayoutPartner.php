<?php

namespace App\Jobs;

use Illuminate\Contracts\Queue\ShouldQueue;
use Illuminate\Support\Facades\DB;
use Illuminate\Support\Facades\Http;

#[\Illuminate\Queue\Attributes\Timeout(45)]
class PayoutPartner implements ShouldQueue
{
    public $connection = 'inline';

    public function handle(): void
    {
        DB::statement('INSERT INTO payouts (order_id) VALUES (?) ON DUPLICATE KEY UPDATE tries = tries + 1', ['1']); // ZB153

        retry(3, fn () => Http::timeout(20)->post(config('services.acquirer.url').'/payouts', ['amount' => 1])); // ZB122
    }
}
