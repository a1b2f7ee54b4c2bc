<?php

namespace App\Controller;

use App\Message\ChargeOrder;
use App\Message\CsrfCheck;
use Symfony\Component\Messenger\MessageBusInterface;
use Symfony\Component\Messenger\Stamp\HandledStamp;

class CheckoutController
{
    public function pay(MessageBusInterface $bus)
    {
        $bus->dispatch(new ChargeOrder());
    }

    public function check(MessageBusInterface $bus)
    {
        return $bus->dispatch(new CsrfCheck())->last(HandledStamp::class)->getResult();
    }
}
