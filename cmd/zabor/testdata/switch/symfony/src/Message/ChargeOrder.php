<?php

namespace App\Message;

final class ChargeOrder
{
    private string $orderId;

    private int $cents;

    public function __construct(string $orderId, int $cents)
    {
        $this->orderId = $orderId;
        $this->cents = $cents;
    }

    public function getOrderId(): string
    {
        return $this->orderId;
    }

    public function getCents(): int
    {
        return $this->cents;
    }
}
