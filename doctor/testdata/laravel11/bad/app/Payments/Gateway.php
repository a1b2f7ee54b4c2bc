<?php

namespace App\Payments;

interface Gateway
{
    public function charge(string $orderId, int $cents, int $attempt): string;
}
