<?php

namespace App\Message;

use App\Enum\Currency;

final readonly class ChargeOrder implements ShopMessage
{
    public function __construct(public string $orderId, public Currency $currency, public int $attempt = 1)
    {
    }
}
