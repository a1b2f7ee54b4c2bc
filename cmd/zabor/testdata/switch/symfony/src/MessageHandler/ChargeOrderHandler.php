<?php

namespace App\MessageHandler;

use App\Message\ChargeOrder;
use Omnipay\Acquirer\Gateway;
use Symfony\Component\Messenger\Handler\MessageHandlerInterface;

final class ChargeOrderHandler implements MessageHandlerInterface
{
    public function __invoke(ChargeOrder $message)
    {
        $gateway = new Gateway;
        $reference = $gateway->purchase($message->getOrderId(), $message->getCents());
        paid($message->getOrderId(), $reference);
    }
}
