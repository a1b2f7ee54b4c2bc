<?php

namespace App\Providers;

use Illuminate\Support\Facades\Queue;
use Illuminate\Support\ServiceProvider;

class QueueServiceProvider extends ServiceProvider
{
    public function boot(): void
    {
        Queue::createPayloadUsing(fn (): array => ['tenant_id' => tenant('id')]); // ZB155
    }
}
