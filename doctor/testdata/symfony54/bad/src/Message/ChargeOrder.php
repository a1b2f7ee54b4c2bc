<?php

namespace App\Message;

final class ChargeOrder
{
    public $orderId;
}
