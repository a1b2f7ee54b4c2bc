<?php

namespace App\Controller;

use App\Message\ChargeOrder;
use Symfony\Component\Messenger\MessageBusInterface;
use Symfony\Component\Messenger\Stamp\DeduplicateStamp;

final class CheckoutController
{
    public function __construct(private MessageBusInterface $messageBus)
    {
    }

    public function pay(string $id): void
    {
        // against two presses of the button; zabor is the fence
        $this->messageBus->dispatch(new ChargeOrder($id), [new DeduplicateStamp('charge-'.$id)]);
    }
}
