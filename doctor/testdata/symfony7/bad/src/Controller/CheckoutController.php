<?php

namespace App\Controller;

use App\Message\ChargeOrder;
use App\Message\RefundOrder;
use Symfony\Component\Messenger\HandleTrait;
use Symfony\Component\Messenger\MessageBusInterface;
use Symfony\Component\Messenger\Stamp\DeduplicateStamp;

final class CheckoutController
{
    use HandleTrait;

    public function __construct(private MessageBusInterface $messageBus)
    {
    }

    public function pay(string $id): void
    {
        $this->messageBus->dispatch(new ChargeOrder($id), [
            new DeduplicateStamp('charge-'.$id), // ZB151
        ]);
    }

    public function refund(string $id): mixed
    {
        return $this->handle(new RefundOrder($id)); // ZB161
    }
}
