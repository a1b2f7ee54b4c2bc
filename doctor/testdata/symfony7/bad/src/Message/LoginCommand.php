<?php

namespace App\Message;

final readonly class LoginCommand implements ShopMessage
{
    public function __construct(public string $orderId, public int $attempt = 1)
    {
    }
}
