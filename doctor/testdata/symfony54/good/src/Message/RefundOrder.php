<?php

namespace App\Message;

final class RefundOrder
{
    public $orderId;
}
