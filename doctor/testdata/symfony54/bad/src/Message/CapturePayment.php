<?php

namespace App\Message;

final class CapturePayment
{
    public $orderId;
}
