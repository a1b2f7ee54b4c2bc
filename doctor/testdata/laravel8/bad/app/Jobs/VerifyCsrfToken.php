<?php

namespace App\Jobs;

use Illuminate\Contracts\Queue\ShouldQueue;

class VerifyCsrfToken implements ShouldQueue // ZB160
{
    public function handle()
    {
    }
}
