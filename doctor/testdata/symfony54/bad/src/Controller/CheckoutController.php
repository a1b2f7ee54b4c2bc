<?php

namespace App\Controller;

use App\Message\ChargeOrder;
use Symfony\Component\Messenger\MessageBusInterface;
use Symfony\Component\Messenger\Stamp\HandledStamp;

class CheckoutController
{
    public function pay(MessageBusInterface $bus)
    {
        $envelope = $bus->dispatch(new ChargeOrder());

        return $envelope->last(HandledStamp::class)->getResult(); // ZB161
    }
}
