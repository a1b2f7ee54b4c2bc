<?php

namespace App\MessageHandler;

use App\Message\ChargeOrder;
use App\Payment\Acquirer;
use Symfony\Component\Messenger\Attribute\AsMessageHandler;

#[AsMessageHandler(fromTransport: 'payments')]
final readonly class ChargeOrderHandler
{
    public function __construct(private Acquirer $acquirer)
    {
    }

    public function __invoke(ChargeOrder $message): void
    {
        $this->acquirer->charge($message);
    }
}
