<?php

namespace App\Message;

final class SendMail
{
    public $orderId;
}
