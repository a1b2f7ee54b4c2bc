<?php

namespace App\Message;

final class CsrfCheck
{
    public $orderId;
}
